#include "dtrain/core/base/log.h"

#include <memory>

#include <fmt/format.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace dtrain {

void set_up_logging(const std::string& prefix, spdlog::level::level_enum level) {
  auto logger =
      std::make_shared<spdlog::logger>("dtrain", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  // Information stands alone; a warning or an error says what it is.
  class LevelWord : public spdlog::custom_flag_formatter {
   public:
    void format(const spdlog::details::log_msg& message, const std::tm&,
                spdlog::memory_buf_t& destination) override {
      std::string_view word;
      if (message.level == spdlog::level::warn) word = "warning: ";
      if (message.level >= spdlog::level::err) word = "error: ";
      destination.append(word.data(), word.data() + word.size());
    }
    std::unique_ptr<custom_flag_formatter> clone() const override {
      return std::make_unique<LevelWord>();
    }
  };
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<LevelWord>('*').set_pattern(prefix + "%*%v");
  logger->set_formatter(std::move(formatter));
  logger->set_level(level);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

void set_up_rank_logging(int rank) {
  if (rank == 0) {
    set_up_logging("", spdlog::level::info);
  } else {
    set_up_logging(fmt::format("[r{}] ", rank), spdlog::level::warn);
  }
}

}  // namespace dtrain
