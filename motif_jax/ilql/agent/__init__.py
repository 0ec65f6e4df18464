"""A text agent: networks, decoding by values, and its folder."""
