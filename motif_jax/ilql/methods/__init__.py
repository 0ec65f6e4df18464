"""The methods and their losses."""
