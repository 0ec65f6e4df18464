"""How numbers are shown: statistics with intervals, formats of measures, tables, charts and
self-contained pages.

Every folder above may write with it: it imports core alone, and nothing here imports jax.

    statistics     means, rates, differences, with their intervals
    measures       the title, unit and meaning of each number of an episode; formats of numbers
    text_tables    tables for a terminal and as Markdown
    charts         line charts and intervals as SVG in a page, and as files
    html           the frame of a page, cells, escapes
    page           sections with tables, charts and folds, as HTML, Markdown and JSON
    token_page     texts token by token, with rows of numbers, coloured by one of them
"""
