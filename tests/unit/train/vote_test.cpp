// The vote at the step border, over every combination of ballots.
#include "dtrain/parallel/train/vote.h"

#include <array>
#include <csignal>
#include <stdexcept>
#include <string>

#include "support.h"

namespace dtrain::test {
namespace {

// Bits of a rank's ballot: failed, signal, out of time, not finite.
constexpr int failed_bit = 1, signal_bit = 2, time_bit = 4, nonfinite_bit = 8;

struct Outcome {
  Ballot ballot;
  std::string error;
  int blamed = -1;
  bool own = false;  // the rank's own error was thrown
};

Outcome cast(Communicator& comm, int bits) {
  Ballot mine;
  if ((bits & signal_bit) != 0) mine.signal = comm.rank() == 0 ? SIGTERM : SIGUSR1;
  mine.out_of_time = (bits & time_bit) != 0;
  mine.nonfinite = (bits & nonfinite_bit) != 0;
  std::exception_ptr error;
  if ((bits & failed_bit) != 0) {
    error = std::make_exception_ptr(std::out_of_range("trouble of " + std::to_string(comm.rank())));
  }
  Outcome outcome;
  try {
    outcome.ballot = vote(comm, mine, error);
  } catch (const CommError& e) {
    outcome.error = e.what();
    outcome.blamed = e.blamed_rank();
  } catch (const std::out_of_range& e) {
    outcome.error = e.what();
    outcome.own = true;
  }
  return outcome;
}

void check_combinations(int ranks) {
  int combinations = 1;
  for (int r = 0; r < ranks; ++r) combinations *= 16;
  run_ranks(ranks, [&](Communicator& comm) {
    for (int combination = 0; combination < combinations; ++combination) {
      const auto bits = [&](int rank) { return combination >> (4 * rank) & 15; };
      const Outcome outcome = cast(comm, bits(comm.rank()));
      int failed = -1, signaled = -1, nonfinite = -1;
      bool out_of_time = false;
      for (int r = ranks - 1; r >= 0; --r) {
        if ((bits(r) & failed_bit) != 0) failed = r;
        if ((bits(r) & signal_bit) != 0) signaled = r;
        if ((bits(r) & nonfinite_bit) != 0) nonfinite = r;
        out_of_time = out_of_time || (bits(r) & time_bit) != 0;
      }
      if (failed >= 0) {
        if ((bits(comm.rank()) & failed_bit) != 0) {
          ASSERT_TRUE(outcome.own);
          ASSERT_EQ(outcome.error, "trouble of " + std::to_string(comm.rank()));
        } else {
          ASSERT_EQ(outcome.error, "stopped because rank " + std::to_string(failed) +
                                       " failed: trouble of " + std::to_string(failed));
          ASSERT_EQ(outcome.blamed, failed);
        }
        continue;
      }
      ASSERT_EQ(outcome.error, "");
      const int signal = signaled < 0 ? 0 : signaled == 0 ? SIGTERM : SIGUSR1;
      ASSERT_EQ(outcome.ballot.signal, signal) << combination;
      ASSERT_EQ(outcome.ballot.out_of_time, out_of_time);
      ASSERT_EQ(outcome.ballot.nonfinite, nonfinite >= 0);
      ASSERT_EQ(outcome.ballot.nonfinite_rank, nonfinite);
    }
  });
}

TEST(Vote, EveryCombinationOfOneRank) {
  check_combinations(1);
}
TEST(Vote, EveryCombinationOfTwoRanks) {
  check_combinations(2);
}
TEST(Vote, EveryCombinationOfThreeRanks) {
  check_combinations(3);
}

// Whatever a rank throws has a text.
TEST(Vote, AnErrorThatIsNoExceptionIsToldToo) {
  std::string told;
  run_ranks(2, [&](Communicator& comm) {
    try {
      vote(comm, {}, comm.rank() == 0 ? std::make_exception_ptr(42) : nullptr);
    } catch (const CommError& e) {
      told = e.what();
    } catch (int number) {
      EXPECT_EQ(number, 42);
    }
  });
  EXPECT_EQ(told, "stopped because rank 0 failed: unknown error");
}

}  // namespace
}  // namespace dtrain::test
