"""A rank of `hanji train` that is stopped, in every phase; for ./dev check, as heartbeats take 5 s."""
import os
import signal
import unittest

from faults_test import PhaseTest

STOP_SECONDS = 3 * 5  # docs/checkpoints_and_failures.md


class StoppedInEveryPhase(PhaseTest):
    def test_is_named_within_three_heartbeats_and_the_run_goes_on_to_the_same_bits(self):
        for number, phase in enumerate(self.VICTIMS):
            process = self.start_alone(*(["--resume"] if number else []))
            struck = self.strike(phase, "STOP")
            print(f"stopped in {phase}: named after {max(struck['seconds']):.2f} s")
            self.assertLessEqual(max(struck["seconds"]), STOP_SECONDS)
            self.assertRegex(self.survivors_log(phase),
                             self.name_of(phase, struck) + " is stopped: no heartbeat for .*state T")
            os.kill(struck["pid"], signal.SIGKILL)
            self.check_end(phase, struck, process)
        self.check_bits()


if __name__ == "__main__":
    unittest.main()
