"""Films of episodes: a player in the browser, a GIF, a ttyrec; `film_files` writes those that a
config asks for.
"""
