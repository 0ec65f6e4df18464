"""Replies to comments, paid by how they are said or how they were liked. numpy only."""
