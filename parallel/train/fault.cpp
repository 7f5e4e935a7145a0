#include "dtrain/parallel/train/fault.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <signal.h>
#include <string_view>
#include <thread>
#include <unistd.h>

#include <stdlib.h>

#include "dtrain/core/base/error.h"

namespace dtrain {

namespace {

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

// Cuts what stands before `separator` off `text`; all of it if there is none.
std::string_view next_part(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view part = text.substr(0, end);
  text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  return trim(part);
}

class FaultReader {
 public:
  explicit FaultReader(std::string_view text) : text_(text) {}

  std::vector<Fault> read() const {
    std::vector<Fault> faults;
    for (std::string_view rest = text_; !rest.empty();) {
      const std::string_view part = next_part(rest, ';');
      if (!part.empty()) faults.push_back(read_fault(part));
    }
    return faults;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError(fmt::format(
        "DTRAIN_FAULT='{}': {}; expected rank=N,step=N,action=throw|exit:CODE|signal:NUMBER|"
        "stall:SECONDS|nan_grad|inf_grad, several separated by ';'",
        text_, what));
  }

  Fault read_fault(std::string_view text) const {
    std::optional<std::int64_t> rank, step;
    std::optional<Fault> action;
    for (std::string_view rest = text; !rest.empty();) {
      std::string_view value = next_part(rest, ',');
      const std::string_view key = next_part(value, '=');
      value = trim(value);
      if (key == "rank") {
        rank = whole(key, value, 0, std::numeric_limits<int>::max());
      } else if (key == "step") {
        step = whole(key, value, 1, std::numeric_limits<std::int64_t>::max());
      } else if (key == "action") {
        action = read_action(value);
      } else {
        fail(fmt::format("unknown key '{}'", key));
      }
    }
    if (!rank) fail("rank is missing");
    if (!step) fail("step is missing");
    if (!action) fail("action is missing");
    action->rank = static_cast<int>(*rank);
    action->step = *step;
    return *action;
  }

  Fault read_action(std::string_view text) const {
    std::string_view argument = text;
    const std::string_view name = next_part(argument, ':');
    Fault fault;
    const bool has_argument = text.find(':') != std::string_view::npos;
    if (name == "exit") {
      fault.action = FaultAction::exit;
      fault.argument = static_cast<double>(whole(name, argument, 0, 255));
    } else if (name == "signal") {
      fault.action = FaultAction::signal;
      fault.argument = static_cast<double>(whole(name, argument, 1, SIGRTMAX));
    } else if (name == "stall") {
      fault.action = FaultAction::stall;
      fault.argument = seconds(argument);
    } else if (has_argument) {
      fail(fmt::format("action '{}' takes no argument, or is unknown", name));
    } else if (name == "throw") {
      fault.action = FaultAction::throw_error;
    } else if (name == "nan_grad") {
      fault.action = FaultAction::nan_gradient;
    } else if (name == "inf_grad") {
      fault.action = FaultAction::inf_gradient;
    } else {
      fail(fmt::format("unknown action '{}'", name));
    }
    return fault;
  }

  std::int64_t whole(std::string_view key, std::string_view text, std::int64_t least,
                     std::int64_t most) const {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
      fail(fmt::format("{} '{}' is not a number from {} to {}", key, text, least, most));
    }
    return value;
  }

  double seconds(std::string_view text) const {
    constexpr double longest = 1e6;
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() ||
        !(value >= 0 && value <= longest)) {
      fail(fmt::format("stall '{}' is not a number of seconds from 0 to {}", text, longest));
    }
    return value;
  }

  std::string_view text_;
};

}  // namespace

std::vector<Fault> parse_faults(const std::string& text) {
  return FaultReader(text).read();
}

std::vector<Fault> faults_from_environment(int rank) {
  const char* text = ::getenv("DTRAIN_FAULT");
  const char* restart = ::getenv("DTRAIN_RESTART");
  if (text == nullptr) return {};
  if (restart != nullptr && std::string_view(restart) != "0" && *restart != '\0') return {};
  std::vector<Fault> faults = parse_faults(text);
  std::erase_if(faults, [rank](const Fault& fault) { return fault.rank != rank; });
  return faults;
}

void inject_before_step(std::span<const Fault> faults, std::int64_t step) {
  for (const Fault& fault : faults) {
    if (fault.step != step) continue;
    switch (fault.action) {
      case FaultAction::throw_error:
        throw Error(ErrorKind::internal, fmt::format("injected fault at step {}", step));
      case FaultAction::exit:
        // Without any clean-up, as where a library ends the process.
        ::_exit(static_cast<int>(fault.argument));
      case FaultAction::signal:
        ::kill(::getpid(), static_cast<int>(fault.argument));
        break;
      case FaultAction::stall:
        std::this_thread::sleep_for(std::chrono::duration<double>(fault.argument));
        break;
      case FaultAction::nan_gradient:
      case FaultAction::inf_gradient:
        break;
    }
  }
}

void inject_into_gradients(std::span<const Fault> faults, std::int64_t step,
                           std::span<float> gradients) {
  for (const Fault& fault : faults) {
    if (fault.step != step || gradients.empty()) continue;
    // The first element: those further behind may be padding between parameters.
    if (fault.action == FaultAction::nan_gradient) {
      gradients.front() = std::numeric_limits<float>::quiet_NaN();
    } else if (fault.action == FaultAction::inf_gradient) {
      gradients.front() = std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace dtrain
