"""Tables for the terminal: plain ASCII, columns as wide as what stands in them."""


def text_table(heads, rows, left=()):
    """Lines of a table; columns whose head is in `left` begin at their left end, the others end at their right end."""
    cells = [[str(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = []
    for row in cells:
        padded = [cell.ljust(width) if head in left else cell.rjust(width) for head, cell, width in zip(heads, row, widths)]
        lines.append("  ".join(padded).rstrip())
    lines.insert(1, "  ".join("-" * width for width in widths))
    return lines


def number(value, digits=4):
    """Significant digits without an exponent where one can do without; blank for None."""
    if value is None:
        return ""
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text and abs(value) < 1e9 else text


def size(count):
    """Bytes as people write them: 8 B, 64 KiB, 4 MiB."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"
