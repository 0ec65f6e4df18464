"""MiniHack's levels (Samvelyan et al. 2021) on this package's NetHack engine."""
