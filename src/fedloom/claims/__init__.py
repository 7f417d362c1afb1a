"""What the papers claim, as data; the figures that test it; and the verdicts computed from both.

claim.py         a claim, read from PAPER.toml
rules.py         the forms of a rule: which cells of a table are compared, and with what bound
statistics.py    intervals, p-values, Holm's correction, how many seeds are needed
result_files.py  the figures of a suite by seed, read from results/SUITE.json
verdict.py       one claim and one result file: agrees, differs, not decided
evidence.py      every claim with the result file that tests it best
"""
