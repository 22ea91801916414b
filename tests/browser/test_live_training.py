"""Training, watched in a real browser while the run goes on: marks, a folder that goes and comes back, a run taken up again."""

from __future__ import annotations

from small_runs import needed, run_folder, run_node, served

from regard.looking.session import Session


def test_what_happens_to_a_run_is_seen_on_the_page(tmp_path):
    needed()
    folder = tmp_path / "run"
    folder.mkdir()
    run_folder("kim", folder)
    (folder / "run.json").write_text('{"status": "running"}')
    with served(Session([folder], device="cpu")) as address:
        said = run_node("live.mjs", address, str(folder), timeout=200)
    assert said["begin"].startswith("● live, 8 rows, last step 8")
    assert "resumed: 1 (step 8)" in said["marked"]
    assert "batches skipped, loss or gradient not finite: 2 (step 9)" in said["marked"]
    assert "not there any more" in said["gone"]
    assert "Bring it back" in said["gone"]
    assert said["kept"] > 0
    assert said["back"].startswith("● live, 10 rows, last step 10")
    assert "resumed: 1 (step 8)" in said["back"]
    assert "resumed: 2 (step 2, step 8)" in said["again"]
    assert "skipped" not in said["again"]
    assert said["errors"] == []
