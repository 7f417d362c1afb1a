"""What the papers claim, as data; the suites and figures that test it; the verdicts.

claim.py         a claim, read from PAPER.toml
rules.py         the forms of a rule: which cells of a table are compared, and with what bound
statistics.py    intervals, p-values, Holm's correction, how many seeds are needed
result_files.py  the figures of a suite by seed, read from results/SUITE.json
judgement.py     one comparison: agrees, differs, not decided
verdict.py       one claim and one result file
evidence.py      every claim with the result file that tests it best
"""
