#include "dtrain/data/registry.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/ranges.h>

#include "dtrain/core/base/error.h"
#include "dtrain/core/config/schema.h"
#include "dtrain/core/config/suggest.h"
#include "dtrain/data/cifar.h"
#include "dtrain/data/csv.h"
#include "dtrain/data/glyphs.h"
#include "dtrain/data/mnist.h"
#include "dtrain/data/subset.h"
#include "dtrain/data/synthetic.h"
#include "dtrain/data/synthetic_tokens.h"
#include "dtrain/data/token_windows.h"

namespace dtrain {

namespace {

// What an amount means where `there` samples or units are: a share is rounded down.
std::int64_t resolve(const config::Amount& amount, std::int64_t there, const std::string& key) {
  if (!amount.has_percent()) {
    if (amount.samples() < 0) {
      throw ConfigError(fmt::format("{}: {} must not be negative", key, amount.samples()));
    }
    return amount.samples();
  }
  const double percent = amount.percent();
  if (!(percent >= 0 && percent <= 100)) {
    throw ConfigError(fmt::format("{}: {}% is not from 0% to 100%", key, percent));
  }
  if (there == endless) {
    throw ConfigError(
        fmt::format("{}: {}% of a data set without end; give a number of samples", key, percent));
  }
  return static_cast<std::int64_t>(std::floor(static_cast<double>(there) * percent / 100));
}

struct Part {
  std::int64_t offset = 0;
  std::int64_t size = 0;
};

// Shares are of units, numbers are of samples: Note [Shares of windows].
Part part_of(const config::DataSource& source, const Dataset& dataset, const std::string& where) {
  const std::int64_t there = dataset.size();
  const Windows windows = dataset.windows();
  const std::string has = fmt::format("data set '{}' has {} samples", source.kind(), there);
  Part part;
  std::int64_t first_unit = 0;
  if (source.has_offset()) {
    const std::int64_t offset = resolve(source.offset(), windows.units, where + ".offset");
    part.offset = source.offset().has_percent() ? windows.sample_from(offset) : offset;
    first_unit = source.offset().has_percent() ? offset : -1;
  }
  if (part.offset > there) {
    throw ConfigError(fmt::format("{}.offset: {}, but {}", where, part.offset, has));
  }
  if (first_unit < 0) first_unit = windows.first_unit(part.offset);
  if (source.has_size()) {
    const std::int64_t size = resolve(source.size(), windows.units, where + ".size");
    part.size =
        source.size().has_percent()
            ? std::max<std::int64_t>(windows.samples_before(first_unit + size) - part.offset, 0)
            : size;
  } else if (there == endless) {
    throw ConfigError(fmt::format("{}.size: must be given, because data set '{}' has no end", where,
                                  source.kind()));
  } else {
    part.size = there - part.offset;
  }
  if (part.size > there - part.offset) {
    // Either may be the one that is wrong.
    throw ConfigError(fmt::format("{}.offset and {}.size: {} samples from offset {} on, but {}",
                                  where, where, part.size, part.offset, has));
  }
  if (part.size == 0 && source.size().has_percent()) {
    throw ConfigError(fmt::format(
        "{}.size: {}% of {} samples is 0 samples: give a larger share, or a number of samples",
        where, source.size().percent(), there));
  }
  if (part.size == 0) {
    throw ConfigError(
        fmt::format("{}: no samples are left from offset {} on: {}", where, part.offset, has));
  }
  return part;
}

// The key of the section whose value is this path; empty if there is none.
std::string key_of_path(const config::DataSource& source, const std::string& where,
                        const KindTable& kinds, const std::string& path) {
  std::string found;
  config_internal::visit_keys(
      source, where, kinds,
      [&](const std::string& key, const google::protobuf::Message& message,
          const google::protobuf::FieldDescriptor& field) {
        if (!found.empty() || !config_internal::key_of(field).path() || field.is_repeated()) {
          return;
        }
        const auto& reflection = *message.GetReflection();
        if (reflection.GetString(message, &field) == path) found = key;
      });
  return found;
}

}  // namespace

void DatasetRegistry::add(const KindSchema& schema,
                          std::function<std::unique_ptr<Dataset>(const KindValues& values)> make) {
  add(schema.name(), schema.prototype(),
      [schema, make = std::move(make)](const google::protobuf::Any& options) {
        return make(KindValues(options, schema));
      });
}

void DatasetRegistry::add(const std::string& kind, const google::protobuf::Message& prototype,
                          Factory make) {
  kinds_.insert_or_assign(kind, Kind{&prototype, std::move(make)});
}

std::unique_ptr<Dataset> DatasetRegistry::create(const config::DataSource& source,
                                                 std::string_view where_view, bool skip_bad) const {
  const std::string where(where_view);
  const auto kind = kinds_.find(source.kind());
  if (kind == kinds_.end()) {
    const std::string nearest = config_internal::nearest_word(source.kind(), kinds());
    throw ConfigError(fmt::format(
        "{}.kind: '{}' is not a data set of this program; {}there are {}", where, source.kind(),
        nearest.empty() ? "" : "did you mean " + nearest + "? ", fmt::join(kinds(), ", ")));
  }
  std::unique_ptr<Dataset> dataset;
  try {
    dataset = kind->second.make(source.options());
  } catch (const DataError& error) {
    KindTable table;
    register_kinds(table);
    const std::string key = key_of_path(source, where, table, error.path());
    if (key.empty()) throw;
    throw Error(ErrorKind::data, fmt::format("{}: {}", key, error.what()));
  }
  DTRAIN_CHECK(dataset != nullptr, "maker of data set '{}'", source.kind());
  if (dataset->size() == 0) {
    throw ConfigError(fmt::format("{}: data set '{}' has no samples", where, source.kind()));
  }
  const Part part = part_of(source, *dataset, where);
  const std::int64_t repeat = source.repeat();
  if (repeat < 1 || repeat > endless / part.size) {
    throw ConfigError(fmt::format(
        "{}.repeat: {} times {} samples are not from 1 to {} samples an epoch: repeat at most {} "
        "times, and train for more epochs",
        where, repeat, part.size, endless, endless / part.size));
  }
  if (part.offset != 0 || part.size != dataset->size() || repeat != 1) {
    dataset = std::make_unique<Subset>(std::move(dataset), part.offset, part.size, repeat);
  }
  if (!skip_bad) dataset->check(0, dataset->size());
  return dataset;
}

void DatasetRegistry::register_kinds(KindTable& kinds) const {
  for (const auto& [name, kind] : kinds_) kinds.add("dataset", name, *kind.prototype);
}

std::vector<std::string> DatasetRegistry::kinds() const {
  std::vector<std::string> names;
  for (const auto& [name, kind] : kinds_) names.push_back(name);
  return names;
}

void register_builtin_datasets(DatasetRegistry& registry) {
  registry.add<config::Glyphs>("glyphs", [](const config::Glyphs& options) {
    return std::make_unique<Glyphs>(options.seed());
  });
  registry.add<config::Mnist>("mnist", [](const config::Mnist& options) {
    return std::make_unique<Mnist>(options.images(), options.labels());
  });
  registry.add<config::Csv>(
      "csv", [](const config::Csv& options) { return std::make_unique<Csv>(options); });
  registry.add<config::Synthetic>("synthetic",
                                  [](const config::Synthetic& options) -> std::unique_ptr<Dataset> {
                                    if (options.has_tokens())
                                      return std::make_unique<SyntheticTokens>(options);
                                    return std::make_unique<Synthetic>(options);
                                  });
  registry.add<config::Cifar10>("cifar10", [](const config::Cifar10& options) {
    return std::make_unique<Cifar>(
        cifar_files(options.path(), CifarKind::cifar10, options.split() == "test"),
        CifarKind::cifar10, CifarLabels::fine);
  });
  registry.add<config::Cifar100>("cifar100", [](const config::Cifar100& options) {
    return std::make_unique<Cifar>(
        cifar_files(options.path(), CifarKind::cifar100, options.split() == "test"),
        CifarKind::cifar100,
        options.labels() == "coarse" ? CifarLabels::coarse : CifarLabels::fine);
  });
  registry.add<config::Text>("text", [](const config::Text& options) {
    return std::make_unique<TokenWindows>(text_windows(options));
  });
  registry.add<config::Tokens>("tokens", [](const config::Tokens& options) {
    return std::make_unique<TokenWindows>(token_windows(options));
  });
}

}  // namespace dtrain
