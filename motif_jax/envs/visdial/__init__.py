"""Visual dialogue: asking about a picture that only the other side sees. numpy only."""
