"""`fedloom reproduce --claims`: the list, its JSON, and mistakes."""

from cli.talk import fedloom
from fedloom.claims.claim import PAPERS, claims

VERDICTS = {"agrees", "differs", "not decided", "not tested"}


def test_json_is_a_list_of_all_claims() -> None:
    listed = fedloom("reproduce", "--claims", "--json").json
    assert [one["id"] for one in listed] == [claim.id for claim in claims()]
    for one in listed:
        assert {"id", "paper", "verdict", "fair", "interval", "seeds"} <= set(one)
        assert one["verdict"] in VERDICTS and isinstance(one["fair"], bool)
        assert one["interval"] is None or len(one["interval"]) == 2
        assert one["sentence"].startswith(one["verdict"])


def test_one_paper() -> None:
    listed = fedloom("reproduce", "fedafa", "--claims", "--json").json
    assert [one["id"] for one in listed] == [claim.id for claim in claims("fedafa")]


def test_the_list_is_grouped_by_paper_and_ends_with_counts() -> None:
    said = fedloom("reproduce", "--claims").out
    places = [said.index(f"{paper}: {len(claims(paper))} claims") for paper in PAPERS]
    assert places == sorted(places)
    last = said.splitlines()[-1]
    assert last.startswith("180 claims: ") and "of them by a fair test" in last
    claim = "fedafa/c10-over-finetuning"
    listed = fedloom("reproduce", "fedafa", "--claims", "--json").json
    (low, high), *_ = [one["interval"] for one in listed if one["id"] == claim]
    (line,) = [line for line in said.splitlines() if "c10-over-finetuning" in line]
    assert f"[{low:+.2f}, {high:+.2f}]" in line


def test_mistakes() -> None:
    unknown = fedloom("reproduce", "fedmx", "--claims", code=2)
    assert "no paper with claims 'fedmx'; did you mean 'fedmix'?" in unknown.flat
    assert "name a table, such as fedalign/table1" in fedloom("reproduce", code=2).flat
