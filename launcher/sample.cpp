// Writes text from a trained gpt.
#include <charconv>
#include <cstdio>
#include <filesystem>

#include <spdlog/spdlog.h>

#include "dtrain/core/checkpoint/checkpoint.h"
#include "dtrain/core/config/config.h"
#include "dtrain/core/ops/isa.h"
#include "dtrain/launcher/commands.h"
#include "dtrain/launcher/exit_code.h"
#include "dtrain/models/sampling.h"
#include "dtrain/parallel/train/replica.h"
#include "dtrain/parallel/train/train.h"

namespace dtrain {
namespace fs = std::filesystem;

namespace {

// Vocabularies up to this are bytes; the tokens of others are numbers.
constexpr int byte_vocabulary = 256;

// --weights, or the newest checkpoint of the output folder, or init.from.
fs::path find_weights(const CommandLine& line, const config::TrainConfig& values) {
  const bool averaged = values.train().ema_decay() > 0;
  if (!line.weights.empty()) return resolve_weights(line.weights, averaged);
  if (!list_checkpoints(RunFolder{values.output()}.checkpoints()).empty()) {
    return resolve_weights(values.output(), averaged);
  }
  if (!values.init().from().empty()) return resolve_weights(values.init().from());
  throw ConfigError(fmt::format(
      "{}: there is no checkpoint to sample from: train the recipe first, or name weights with "
      "--weights or init.from",
      values.output()));
}

std::vector<std::int32_t> tokens_of_bytes(const std::string& prompt, int vocabulary) {
  std::vector<std::int32_t> tokens;
  for (const char letter : prompt) {
    const int byte = static_cast<unsigned char>(letter);
    if (byte >= vocabulary) {
      throw ConfigError(fmt::format("--prompt: byte {} at {} is not one of the model's {} tokens",
                                    byte, tokens.size(), vocabulary));
    }
    tokens.push_back(byte);
  }
  return tokens;
}

std::vector<std::int32_t> tokens_of_numbers(const std::string& prompt, int vocabulary) {
  std::vector<std::int32_t> tokens;
  for (std::size_t at = prompt.find_first_not_of(" \t\n,"); at < prompt.size();) {
    const std::size_t end = std::min(prompt.find_first_of(" \t\n,", at), prompt.size());
    const std::string word = prompt.substr(at, end - at);
    std::int32_t token = -1;
    const auto [last, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    if (error != std::errc() || last != word.data() + word.size() || token < 0 ||
        token >= vocabulary) {
      throw ConfigError(fmt::format(
          "--prompt: '{}' is not a token from 0 to {}: a model of more than {} tokens takes their "
          "numbers, as in --prompt '15496 11'",
          word, vocabulary - 1, byte_vocabulary));
    }
    tokens.push_back(token);
    at = prompt.find_first_not_of(" \t\n,", end);
  }
  return tokens;
}

void write_token(std::int32_t token, bool as_byte) {
  if (as_byte) {
    std::fputc(token, stdout);
  } else {
    fmt::print("{} ", token);
  }
}

}  // namespace

int sample_command(const CommandLine& line, const Registry& registry) {
  const Config config = load_config(line.config, line.overrides, registry.kinds());
  const config::TrainConfig& values = config.values;
  if (values.model().name() != "gpt") {
    throw ConfigError(fmt::format("model.name: '{}' is no model of text: sample wants gpt",
                                  values.model().name()));
  }
  const auto options = unpack<config::Gpt>(values.model().options());
  const bool bytes = options.vocabulary() <= byte_vocabulary;
  std::vector<std::int32_t> tokens = bytes ? tokens_of_bytes(line.prompt, options.vocabulary())
                                           : tokens_of_numbers(line.prompt, options.vocabulary());
  if (tokens.empty()) {
    throw ConfigError("--prompt: is empty: give at least one token for the text to begin with");
  }
  select_cpu_isa(values.cpu_isa());
  const std::unique_ptr<Module> model = registry.models.create(
      values.model(),
      {.shape = {options.context()}, .classes = options.vocabulary(), .dtype = DType::i32});
  const ArenaLayout layout(*model);
  const fs::path from = find_weights(line, values);
  config::Optimizer no_state;
  no_state.set_name("sgd");
  Replica replica(layout, no_state);
  replica.load_weights(from, true);
  if (tokens.size() > static_cast<std::size_t>(options.context())) {
    spdlog::warn("the prompt has {} tokens: the model sees the last {}", tokens.size(),
                 options.context());
  }

  Allocator allocator("sample");
  OpContext context(allocator, values.parallel().threads_per_virtual_rank());
  context.bind_to_this_thread();
  TokenGenerator generator(context, *model, replica.arena(), options.context(), line.sampling);
  for (const std::int32_t token : tokens) write_token(token, bytes);
  for (std::int64_t i = 0; i < line.tokens; ++i) {
    tokens.push_back(generator.next(tokens));
    write_token(tokens.back(), bytes);
    std::fflush(stdout);
    if (std::ferror(stdout) != 0) break;  // nobody reads on
  }
  std::fputc('\n', stdout);
  return exit_code::done;
}

}  // namespace dtrain
