"""The page of the cookbook has its policies as they are."""

from devkit.tools import cookbook_page


def test_the_page_is_what_the_policies_say() -> None:
    assert cookbook_page.PAGE.read_text(encoding="utf-8") == cookbook_page.page(), "run `make docs`"
