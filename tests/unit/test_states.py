from tests.helpers import diagrams


def test_the_diagrams_in_the_docs_are_those_of_the_code() -> None:
    page = diagrams.PAGE.read_text()
    assert diagrams.rewritten(page) == page, "run: python -m tests.helpers.diagrams"


def test_a_machine_leads_only_to_states_that_it_knows() -> None:
    for table in diagrams.MACHINES.values():
        assert {new for moves in table.values() for new in moves} == set(table) - {None}
