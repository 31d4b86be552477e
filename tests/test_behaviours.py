"""Where others failed their users (tests/cases/behaviours.md): for each line the tests that show our behaviour.

This file asserts that they exist under these names, so that the table cannot go stale in silence.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

TESTS = Path(__file__).parent

#: Number of the line -> "file::test", files without their ending.
SHOWN_BY = {
    1: [
        "integration/test_bad_days::test_a_session_ends_when_idle_but_never_while_its_websocket_is_open",
        "test_service::test_a_lease_says_where_the_session_lives_and_stops_its_idle_clock",
    ],
    2: [
        "edge/test_websocket_silence::test_the_end_of_the_session_closes_a_silent_one_at_once",
        "test_service::test_a_container_at_its_age_limit_ends_its_sessions_and_another_takes_the_next",
    ],
    3: ["integration/test_bad_days::test_a_session_ends_when_idle_but_never_while_its_websocket_is_open"],
    4: [
        "test_service::test_an_unused_container_goes_after_the_scaledown_window_and_one_with_a_session_stays",
        "core/test_fleet_machine::test_invariants_hold_when_mail_is_late_and_out_of_order_and_every_row_occurs",
    ],
    5: [
        "integration/test_deploy::test_old_containers_keep_sessions_and_websockets_and_new_sessions_go_to_new_ones",
        "integration/test_deploy::test_sighup_reads_the_definition_again",
    ],
    6: [
        "core/test_fleet_stops::test_one_that_drains_or_stops_is_not_touched",
        "test_health::test_one_that_drains_or_stops_is_left_alone",
        "integration/test_health::test_one_that_stops_listening_and_one_that_is_stopped_are_killed_and_their_websockets_told",
    ],
    7: ["integration/test_curl_transcript::test_the_transcript"],
    8: [
        "integration/test_http_ends::test_a_half_closed_client_still_gets_its_answer",
        "integration/test_http_ends::test_a_half_closed_client_without_progress_is_gone_after_its_time",
    ],
    9: ["integration/test_http_ends::test_a_client_that_leaves_aborts_the_containers_work_and_frees_its_lease"],
    10: ["integration/ws_matrix::test_deflate_with_context_takeover_is_negotiated_end_to_end"],
    11: ["integration/ws_matrix::test_closes_pass_with_code_and_reason_and_fins_follow"],
    12: [
        "test_service::test_two_hundred_at_once_get_one_hundred_places_in_two_containers",
        "core/test_tokens::test_a_forged_token_past_its_expiry_is_only_bad",
    ],
    13: ["integration/test_http_streaming::test_a_stopped_reader_of_a_download_stops_the_container_and_costs_little"],
    14: ["integration/test_http_streaming::test_trailers_pass_both_ways"],
    15: ["integration/test_http_cases::test_every_request_gets_an_allowed_outcome"],
    16: ["edge/test_forwarding::test_which_origins_are_allowed"],
    17: [
        "integration/test_bad_days::test_a_session_ends_when_idle_but_never_while_its_websocket_is_open",
        "integration/test_game_browser::test_two_windows_in_one_room_see_each_other_move",
    ],
    18: [
        "test_service::test_two_hundred_at_once_get_one_hundred_places_in_two_containers",
        "test_service::test_a_waiting_client_can_be_told_its_place",
    ],
    19: [
        "integration/test_process_endings::test_a_grandchild_that_left_the_session_does_not_survive",
        "integration/test_process_endings::test_a_grandchild_that_holds_the_output_neither_delays_the_exit_nor_survives",
    ],
    20: [
        "integration/test_websocket_relay::test_a_ping_during_a_large_frame_comes_after_it",
        "edge/test_websocket_frames::test_random_frames_cut_anywhere_with_pings_at_random_moments",
    ],
    21: [
        "integration/test_bad_days::test_a_container_that_is_killed_ends_its_sessions_and_the_next_start_gets_another",
        "test_service::test_containers_that_fail_refuse_waiting_starts_and_are_tried_again_later",
    ],
    22: ["integration/test_daemon_limits::test_without_descriptors_accepting_pauses_is_said_once_and_resumes"],
    23: ["integration/test_bad_days::test_a_session_is_warned_before_it_is_reclaimed_and_may_be_extended"],
    24: [
        "integration/test_embedded_browser::test_the_cookie_works_in_another_sites_frame_where_it_may",
        "integration/test_embedded_browser::test_elsewhere_a_frame_is_refused_and_tokens_that_need_no_cookie_work",
    ],
    25: [
        "test_service::test_a_client_that_leaves_the_queue_frees_its_place",
        "test_service::test_two_hundred_at_once_get_one_hundred_places_in_two_containers",
    ],
    26: ["integration/test_bad_days::test_a_session_ends_when_idle_but_never_while_its_websocket_is_open"],
}


class BehaviourTests(SynchronousTestCase):
    def test_every_line_is_shown(self) -> None:
        lines = (TESTS / "cases" / "behaviours.md").read_text().splitlines()
        numbers = {int(found[1]) for line in lines if (found := re.match(r"(\d+)\. ", line))}
        self.assertEqual(set(SHOWN_BY), numbers)

    def test_the_tests_that_are_named_exist(self) -> None:
        for number, tests in SHOWN_BY.items():
            for test in tests:
                file, name = test.split("::")
                tree = ast.parse((TESTS / f"{file}.py").read_text())
                names = {
                    node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
                }
                self.assertIn(name, names, f"line {number}: {file}")
