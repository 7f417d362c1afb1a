"""What the papers claim, as data; the figures that test it; and the verdicts computed from both.

claim.py          a claim, read from PAPER.toml
rules.py          the forms of a rule: which cells of a table are compared, and with what bound
statistics.py     intervals, p-values, Holm's correction, how many seeds are needed
suites.py         the runs that decide claims, fixed beforehand, read from suites.toml
plan_suite.py     from a suite, a paper or a claim to runs in folders
overridden.py     what the user has changed of a suite's settings
estimate.py       how long runs will take, from measured rates
gates.py          whether the runs of a suite are a fair test
analyses.py       analyses of finished runs, for figures such as the largest eigenvalue
collect.py        from run folders to results/SUITE.json
commits.py        which commit runs were made with, and which one fixed their suite
row_files.py      the settings and the log of each row of a suite
merge_results.py  result files of the same suite with other seeds as one
result_files.py   the figures of a suite by seed, read from results/SUITE.json
verdict.py        one claim and one result file: agrees, differs, not decided
measure_words.py  what a figure is, in words
suite_table.py    the figures of a suite next to the paper's
row_gains.py      how a row of a table compares with the baseline, by seed
sign_check.py     one cell of a table: above or below the baseline, as in the paper
evidence.py       every claim with the result file that tests it best
"""
