#include "dtrain/parallel/comm/direct/meeting.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dtrain/core/base/clock.h"
#include "dtrain/core/base/error.h"
#include "dtrain/core/base/spin.h"
#include "dtrain/parallel/comm/direct/futex.h"

namespace dtrain {

namespace {

constexpr double slice_seconds = 0.1;
// About what falling asleep and being woken costs.
constexpr double spin_with_own_processor = 20e-6;
constexpr double spin_with_shared_processor = 1e-6;

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

Meeting::Meeting(ControlBlock control, int rank, std::function<bool(int)> died)
    : control_(control), rank_(rank), died_(std::move(died)) {}

void Meeting::set_own_processors(bool own) {
  own_processors_ = own;
}

void Meeting::meet(const Collective& collective, double timeout) {
  if (control_.aborted()) control_.throw_aborted();
  if (control_.ranks() == 1) return;
  const std::uint64_t number = next_++;
  ControlBlock::Header& header = control_.header();
  ControlBlock::RankSlot& own = control_.slot(rank_);
  own.collective[number & 1] = collective;
  own.entered.store(number + 1, std::memory_order_release);
  const auto ranks = static_cast<std::uint64_t>(control_.ranks());
  if (header.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == (number + 1) * ranks) {
    header.completed.store(number + 1, std::memory_order_release);
    header.event.fetch_add(1);
    if (header.sleepers.load() > 0) futex_wake_all(header.event);
  } else if (!spin(number)) {
    sleep(number, collective, timeout);
  }
  compare(number);
}

bool Meeting::completed(std::uint64_t number) const {
  return control_.header().completed.load(std::memory_order_acquire) > number;
}

bool Meeting::spin(std::uint64_t number) const {
  const TimePoint start = Clock::now();
  const double spin_seconds =
      own_processors_ ? spin_with_own_processor : spin_with_shared_processor;
  do {
    for (int i = 0; i < 16; ++i) {
      if (completed(number)) return true;
      pause_processor();
    }
  } while (seconds_since(start) < spin_seconds && !control_.aborted());
  return false;
}

void Meeting::sleep(std::uint64_t number, const Collective& collective, double timeout) const {
  ControlBlock::Header& header = control_.header();
  const TimePoint start = Clock::now();
  const Deadline deadline(timeout);
  TimePoint last_look = start;
  while (true) {
    const std::uint32_t event = header.event.load();
    if (completed(number)) return;
    if (control_.aborted()) control_.throw_aborted();
    if (deadline.passed()) {
      const std::vector<int> late = missing(number);
      if (!late.empty()) {
        fail_late(late, collective, fmt::format("for {:.1f} s", seconds_since(start)));
      }
      // All have come, so it is complete in a moment, unless the last one was killed right there.
      if (seconds_since(start) > timeout + 1) {
        control_.abort("all ranks have come, but the last was killed before it could say so", -1);
      }
    }
    if (seconds_since(last_look) >= slice_seconds / 2) {
      last_look = Clock::now();
      for (const int rank : missing(number)) {
        // It may have come, and left for good, between the two questions.
        if (!died_(rank) || control_.slot(rank).entered.load() > number) continue;
        fail_late({rank}, collective,
                  fmt::format("and its process {} has ended", control_.slot(rank).pid.load()));
      }
    }
    header.sleepers.fetch_add(1);
    futex_wait(header.event, event, std::clamp(deadline.left(), 1e-3, slice_seconds));
    header.sleepers.fetch_sub(1);
  }
}

std::vector<int> Meeting::missing(std::uint64_t number) const {
  std::vector<int> ranks;
  for (int r = 0; r < control_.ranks(); ++r) {
    if (control_.slot(r).entered.load(std::memory_order_acquire) <= number) ranks.push_back(r);
  }
  return ranks;
}

void Meeting::fail_late(const std::vector<int>& late, const Collective& collective,
                        const std::string& happened) const {
  std::vector<int> waiting;
  for (int r = 0; r < control_.ranks(); ++r) {
    if (std::find(late.begin(), late.end(), r) == late.end()) waiting.push_back(r);
  }
  const bool one = late.size() == 1;
  const std::string what =
      collective.kind == CollectiveKind::join
          ? "joined the group"
          : fmt::format("{} {} #{} ({} bytes)", collective.phase == 0 ? "entered" : "finished",
                        name_of(collective.kind), collective.sequence, payload_bytes(collective));
  control_.abort(fmt::format("{} {} not {} {}; waiting: {}", ranks_text(late), one ? "has" : "have",
                             what, happened, fmt::join(waiting, ", ")),
                 late.front());
  // All ranks report the same: that of whoever was first.
  control_.throw_aborted();
}

void Meeting::compare(std::uint64_t number) const {
  const auto said = [&](int rank) -> const Collective& {
    return control_.slot(rank).collective[number & 1];
  };
  const int ranks = control_.ranks();
  int odd = 1;
  while (odd < ranks && said(odd) == said(0)) ++odd;
  if (odd == ranks) return;

  const auto counted = [&](const Collective& c) {
    int same = 0;
    for (int r = 0; r < ranks; ++r) same += said(r) == c;
    return same;
  };
  bool detail = true;  // where the short form does not show the difference
  for (int r = 1; r < ranks; ++r) detail = detail && to_string(said(r)) == to_string(said(0));
  std::string text = fmt::format("collective #{} differs:", said(0).sequence);
  constexpr int listed = 16;
  for (int r = 0; r < std::min(ranks, listed); ++r) {
    text += fmt::format("{} rank {} {}", r == 0 ? "" : ",", r, to_string(said(r), detail));
  }
  if (ranks > listed) text += ", ...";
  int blamed = -1;  // the one that differs from all others
  for (int r = 0; r < ranks && ranks > 2; ++r) {
    if (counted(said(r)) == 1 && counted(said(r == 0 ? 1 : 0)) == ranks - 1) blamed = r;
  }
  control_.abort(text, blamed);
  throw CommError(text, blamed);
}

}  // namespace dtrain
