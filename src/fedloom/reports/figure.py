"""A matplotlib figure that notebooks show by themselves."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure


class ShownFigure(Figure):
    """Notebooks ask an object for its picture; without pyplot, a plain Figure gives none."""

    def _repr_png_(self) -> bytes:
        picture = BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()
