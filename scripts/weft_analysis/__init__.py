"""What weft's Python tools share: reading rows, statistics over launches, verdicts, tables, starting launches.

Needs nothing but Python 3.9. The tools are beside this folder: weft-compare and show_*.py.
"""
