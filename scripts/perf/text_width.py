"""How wide a text is in DejaVu Sans, which browsers on Linux take for `sans-serif` and which is wider than others: for diagrams.py, and for the test that texts fit their boxes."""

# Of the characters from space to tilde, in 64ths of the font's size; read from DejaVuSans.ttf.
WIDTHS = [20.34, 25.66, 29.44, 53.62, 40.72, 60.81, 49.91, 17.59, 24.97, 24.97, 32.0, 53.62, 20.34, 23.09, 20.34, 21.56, 40.72, 40.72, 40.72, 40.72, 40.72, 40.72, 40.72, 40.72,
          40.72, 40.72, 21.56, 21.56, 53.62, 53.62, 53.62, 33.97, 64.0, 43.78, 43.91, 44.69, 49.28, 40.44, 36.81, 49.59, 48.12, 18.88, 18.88, 41.97, 35.66, 55.22, 47.88, 50.38,
          38.59, 50.38, 44.47, 40.62, 39.09, 46.84, 43.78, 63.28, 43.84, 39.09, 43.84, 24.97, 21.56, 24.97, 53.62, 32.0, 32.0, 39.22, 40.62, 35.19, 40.62, 39.38, 22.53, 40.62,
          40.56, 17.78, 17.78, 37.06, 17.78, 62.34, 40.56, 39.16, 40.62, 40.62, 26.31, 33.34, 25.09, 40.56, 37.88, 52.34, 37.88, 37.88, 33.59, 40.72, 21.56, 40.72, 53.62]
SIZES = {"title": 13, "lane": 13, "note": 11, "small": 11, "in": 12, "in small": 10}  # pixels, by class of a text in pictures that matplotlib does not draw
BOLD = 1.13  # at most so many times as wide


def width_of(text, kind):
    return sum(WIDTHS[ord(c) - 32] for c in text) / 64 * SIZES[kind] * (BOLD if kind == "title" else 1)
