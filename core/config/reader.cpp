#include "dtrain/core/config/reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "dtrain/core/config/scalars.h"
#include "dtrain/core/config/schema.h"
#include "dtrain/core/config/suggest.h"

namespace dtrain::config_internal {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

namespace {

// After so many unknown keys the file is something else, and suggestions only cost time.
constexpr int kMaxSuggested = 50;

// A key of a section: a field of its message, or of its kind's.
struct Slot {
  Message* message = nullptr;
  const FieldDescriptor* field = nullptr;
};

class Reader {
 public:
  Reader(const YamlNode& root, const KindTable& kinds, const Folders& folders, Given& given,
         Problems& problems)
      : root_(root), kinds_(kinds), folders_(folders), given_(given), problems_(problems) {}

  void read_section(const YamlNode& node, const std::string& path, Message& message);

 private:
  void read_value(const YamlNode& node, const std::string& path, Slot slot);
  void read_short_name(const YamlNode& node, const std::string& path, Message& message);
  void read_list(const YamlNode& node, const std::string& path, Slot slot);
  // `index` is -1 for a value that is no element of a list.
  void read_scalar(const YamlNode& node, const std::string& path, Slot slot);
  void read_number(const YamlNode& node, const std::string& path, Slot slot);
  void read_flag(const YamlNode& node, const std::string& path, Slot slot);
  void read_text(const YamlNode& node, const std::string& path, Slot slot);
  void read_amount(const YamlNode& node, const std::string& path, Slot slot);

  std::unique_ptr<Message> options_for(const YamlNode& node, const std::string& path,
                                       const Message& message);
  void check_required(const YamlNode& node, const std::string& path, const Message& message,
                      const std::set<std::string>& present);
  void report_unknown(const YamlEntry& entry, const std::string& path, const Message& message);
  std::vector<Candidate> candidates() const;
  void add_candidates(const Descriptor& type, const std::string& path, const YamlNode* node,
                      std::vector<Candidate>& out) const;

  void problem(const YamlNode& node, const std::string& path, const std::string& what) {
    problems_.add(node.place, path, what);
  }

  const YamlNode& root_;
  const KindTable& kinds_;
  const Folders& folders_;
  Given& given_;
  Problems& problems_;
  int suggested_ = 0;
};

const FieldDescriptor* find_key(const Descriptor& type, const std::string& name) {
  const FieldDescriptor* field = type.FindFieldByName(name);
  return field && !is_kind_options(*field) ? field : nullptr;
}

// "a whole number", "a list of numbers", ...: what a key expects.
std::string expected(const FieldDescriptor& field) {
  const config::Key& key = key_of(field);
  const bool list = field.is_repeated();
  if (is_amount(field)) return "a number of samples, or a share such as 90%";
  std::string type;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      type = "true or false";
      break;
    case FieldDescriptor::CPPTYPE_STRING:
      type = list ? "texts" : "text";
      break;
    case FieldDescriptor::CPPTYPE_DOUBLE:
      type = list ? "numbers" : "a number";
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "a section";
    default:
      type = list ? "whole numbers" : "a whole number";
  }
  if (list) return "a list of " + type;
  return key.auto_word() ? type + " or auto" : type;
}

std::string bound_text(double bound) {
  if (bound == std::floor(bound) && std::abs(bound) < 1e15) {
    return std::to_string(static_cast<std::int64_t>(bound));
  }
  return real_text(bound);
}

// What `value` breaks, or empty.
std::string out_of_range(const config::Key& key, double value) {
  const bool below =
      key.has_min() && (key.exclusive_min() ? value <= key.min() : value < key.min());
  const bool above = key.has_max() && value > key.max();
  if (!below && !above) return "";
  const char* low = key.exclusive_min() ? "more than" : "at least";
  if (key.has_min() && key.has_max()) {
    return key.exclusive_min()
               ? fmt::format("must be more than {} and at most {}", bound_text(key.min()),
                             bound_text(key.max()))
               : fmt::format("must be from {} to {}", bound_text(key.min()), bound_text(key.max()));
  }
  if (key.has_min()) return fmt::format("must be {} {}", low, bound_text(key.min()));
  return fmt::format("must be at most {}", bound_text(key.max()));
}

void Reader::read_section(const YamlNode& node, const std::string& path, Message& message) {
  if (node.kind == YamlNode::Kind::empty) {
    problem(node, path,
            path.empty() ? "the recipe is empty"
                         : "the section is empty; give its keys, or leave it out");
    return;
  }
  if (node.kind != YamlNode::Kind::map) {
    problem(node, path,
            fmt::format("expected {} of 'key: value' lines, found {}",
                        path.empty() ? "a recipe" : "a section", node.describe()));
    return;
  }
  const Descriptor& type = *message.GetDescriptor();
  const std::string& selector = section_of(type).selector();
  std::unique_ptr<Message> options;
  // Without a known kind its keys cannot be told from mistakes: one problem, not many.
  bool kind_unknown = false;
  if (!selector.empty()) {
    options = options_for(node, path, message);
    kind_unknown = !options;
  }

  std::map<std::string, const YamlEntry*> seen;
  std::set<std::string> present;
  for (const YamlEntry& entry : node.entries) {
    const auto [first, is_new] = seen.emplace(entry.key, &entry);
    if (!is_new) {
      problems_.add(entry.place, join_path(path, entry.key),
                    fmt::format("the key is given twice, on line {} and on line {}; keep one",
                                first->second->place.line, entry.place.line));
      continue;
    }
    Slot slot{&message, find_key(type, entry.key)};
    if (!slot.field && options)
      slot = {options.get(), find_key(*options->GetDescriptor(), entry.key)};
    if (slot.field) {
      present.insert(entry.key);
      const std::string key_path = join_path(path, entry.key);
      given_.emplace(key_path, entry.value.place);
      read_value(entry.value, key_path, slot);
    } else if (!kind_unknown || entry.key == "<<") {
      report_unknown(entry, path, message);
    }
  }
  for (const YamlEntry& entry : node.entries) {
    const FieldDescriptor* field = find_key(type, entry.key);
    const std::string key_path = join_path(path, entry.key);
    if (field && !applies(*field, message) && !problems_.touch(join_path(path, "name"))) {
      const auto& names = key_of(*field).only_for();
      problem(entry.value, key_path,
              fmt::format("the key belongs to {}, but {} is {}; leave it out",
                          join_or({names.begin(), names.end()}), join_path(path, "name"),
                          selected_name(message)));
    }
  }
  check_required(node, path, message, present);
  if (options) {
    check_required(node, path, *options, present);
    spell_out_defaults(*options);
    OpenSection{&message, std::move(options)}.close();
  }
}

std::unique_ptr<Message> Reader::options_for(const YamlNode& node, const std::string& path,
                                             const Message& message) {
  const config::Section& section = section_of(*message.GetDescriptor());
  const YamlNode* selector = node.find(section.selector());
  // A missing or mistyped selector is reported as any other key.
  if (!selector || selector->kind != YamlNode::Kind::scalar) return nullptr;
  const Message* prototype = kinds_.find(section.kinds(), selector->text);
  if (prototype) return std::unique_ptr<Message>(prototype->New());
  const std::vector<std::string> known = kinds_.kinds(section.kinds());
  const std::string near = nearest_word(selector->text, known);
  problem(*selector, join_path(path, section.selector()),
          fmt::format("unknown kind {}; {}known are {}", shown(selector->text),
                      near.empty() ? "" : fmt::format("did you mean {}? ", near),
                      known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))));
  return nullptr;
}

void Reader::check_required(const YamlNode& node, const std::string& path, const Message& message,
                            const std::set<std::string>& present) {
  const Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (!key_of(field).required() || present.count(field.name())) continue;
    std::string hint;
    if (!key_of(field).doc().empty()) hint = fmt::format(" ({})", key_of(field).doc());
    problem(node, join_path(path, field.name()),
            fmt::format("the key is required, but missing: {}{}", expected(field), hint));
  }
}

void Reader::report_unknown(const YamlEntry& entry, const std::string& path,
                            const Message& message) {
  const std::string full = join_path(path, entry.key);
  if (entry.key == "<<") {
    problems_.add(entry.place, full,
                  "merge keys (<<) are not supported; write the keys out in each section");
    return;
  }
  std::string what = "unknown key";
  if (entry.value.kind == YamlNode::Kind::scalar) {
    what += fmt::format(" (value {})", shown(entry.value.text));
  }
  // {lr: 1,5} is two keys.
  if (entry.value.kind == YamlNode::Kind::empty && parse_integer(entry.key).error.empty()) {
    what += ": a comma ends a value here; write a point before the fraction of a number";
  } else if (++suggested_ <= kMaxSuggested) {
    // A key of another kind of the same section is no typing mistake.
    const config::Section& section = section_of(*message.GetDescriptor());
    std::vector<std::string> others;
    for (const std::string& kind : kinds_.kinds(section.kinds())) {
      if (find_key(*kinds_.find(section.kinds(), kind)->GetDescriptor(), entry.key)) {
        others.push_back(kind);
      }
    }
    const YamlNode* node = &root_;
    for (std::size_t begin = 0; node && begin < path.size();) {
      const std::size_t end = std::min(path.find('.', begin), path.size());
      node = node->find(path.substr(begin, end - begin));
      begin = end + 1;
    }
    const YamlNode* selected = node ? node->find(section.selector()) : nullptr;
    const std::vector<std::string> near = nearest(entry.key, path, candidates());
    if (!others.empty() && selected) {
      what +=
          fmt::format(": it belongs to {} {}, but {} is {}", section.selector(), join_or(others),
                      join_path(path, section.selector()), shown(selected->text));
    } else if (!near.empty()) {
      what += fmt::format("; did you mean {}?", join_or(near));
    }
  }
  problems_.add(entry.place, full, what);
}

std::vector<Candidate> Reader::candidates() const {
  std::vector<Candidate> out;
  add_candidates(*config::TrainConfig::descriptor(), "", &root_, out);
  return out;
}

void Reader::add_candidates(const Descriptor& type, const std::string& path, const YamlNode* node,
                            std::vector<Candidate>& out) const {
  const config::Section& section = section_of(type);
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (is_kind_options(field)) {
      const YamlNode* selector = node ? node->find(section.selector()) : nullptr;
      const Message* options = selector ? kinds_.find(section.kinds(), selector->text) : nullptr;
      if (options) add_candidates(*options->GetDescriptor(), path, nullptr, out);
      continue;
    }
    Candidate candidate{join_path(path, field.name()), {field.name()}};
    for (const std::string& name : key_of(field).other_name()) candidate.names.push_back(name);
    out.push_back(candidate);
    if (is_section(field)) {
      add_candidates(*field.message_type(), candidate.path,
                     node ? node->find(field.name()) : nullptr, out);
    }
  }
}

void Reader::read_value(const YamlNode& node, const std::string& path, Slot slot) {
  const FieldDescriptor& field = *slot.field;
  if (is_section(field)) {
    DTRAIN_CHECK(!field.is_repeated(), "{}: recipes have no lists of sections", path);
    Message& section = *slot.message->GetReflection()->MutableMessage(slot.message, &field);
    if (key_of(field).short_name() && node.kind == YamlNode::Kind::scalar) {
      read_short_name(node, path, section);
    } else {
      read_section(node, path, section);
    }
    return;
  }
  if (node.kind == YamlNode::Kind::empty) {
    problem(node, path,
            fmt::format("the value is empty; give {}, or leave the key out", expected(field)));
  } else if (field.is_repeated()) {
    read_list(node, path, slot);
  } else if (node.kind != YamlNode::Kind::scalar) {
    problem(node, path, fmt::format("expected {}, found {}", expected(field), node.describe()));
  } else {
    read_scalar(node, path, slot);
  }
}

void Reader::read_short_name(const YamlNode& node, const std::string& path, Message& message) {
  const FieldDescriptor* name = message.GetDescriptor()->FindFieldByName("name");
  DTRAIN_CHECK(name, "{} has a short name, but no field called name", path);
  const std::string key_path = join_path(path, "name");
  given_.emplace(key_path, node.place);
  read_scalar(node, key_path, {&message, name});
}

void Reader::read_list(const YamlNode& node, const std::string& path, Slot slot) {
  const FieldDescriptor& field = *slot.field;
  if (node.kind != YamlNode::Kind::list) {
    std::string hint;
    if (node.kind == YamlNode::Kind::scalar) hint = fmt::format("; write [{}]", node.text);
    problem(node, path,
            fmt::format("expected {}, found {}{}", expected(field), node.describe(), hint));
    return;
  }
  if (node.items.empty() && (key_of(field).required() || key_of(field).list_default_size() > 0)) {
    problem(node, path, "the list must not be empty");
    return;
  }
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const YamlNode& item = node.items[i];
    if (item.kind != YamlNode::Kind::scalar) {
      problem(item, fmt::format("{}[{}]", path, i),
              fmt::format("expected {}, which holds plain values; found {} in it", expected(field),
                          item.describe()));
      continue;
    }
    read_scalar(item, fmt::format("{}[{}]", path, i), slot);
  }
}

void Reader::read_scalar(const YamlNode& node, const std::string& path, Slot slot) {
  if (is_amount(*slot.field)) return read_amount(node, path, slot);
  switch (slot.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return read_text(node, path, slot);
    case FieldDescriptor::CPPTYPE_BOOL:
      return read_flag(node, path, slot);
    default:
      return read_number(node, path, slot);
  }
}

// Stores a value in a field, or at the end of a list.
template <typename T>
void store(Slot slot, T value) {
  const Reflection& r = *slot.message->GetReflection();
  Message* m = slot.message;
  const FieldDescriptor* f = slot.field;
  const bool list = f->is_repeated();
  if constexpr (std::is_same_v<T, std::int32_t>) {
    list ? r.AddInt32(m, f, value) : r.SetInt32(m, f, value);
  } else if constexpr (std::is_same_v<T, std::int64_t>) {
    list ? r.AddInt64(m, f, value) : r.SetInt64(m, f, value);
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    list ? r.AddUInt64(m, f, value) : r.SetUInt64(m, f, value);
  } else if constexpr (std::is_same_v<T, double>) {
    list ? r.AddDouble(m, f, value) : r.SetDouble(m, f, value);
  } else if constexpr (std::is_same_v<T, bool>) {
    list ? r.AddBool(m, f, value) : r.SetBool(m, f, value);
  } else {
    list ? r.AddString(m, f, value) : r.SetString(m, f, value);
  }
}

void Reader::read_number(const YamlNode& node, const std::string& path, Slot slot) {
  const FieldDescriptor& field = *slot.field;
  const config::Key& key = key_of(field);
  if (node.in_quotes) {
    problem(node, path,
            fmt::format(
                "expected {}, found {}; write it without quotes",
                field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE ? "a number" : "a whole number",
                node.describe()));
    return;
  }
  const auto read = [&](auto scalar, auto low, auto high, auto convert) {
    if (key.auto_word() && node.text == "auto") {
      store(slot, convert(0));
      return;
    }
    std::string error = scalar.error;
    // An unbounded 32-bit field still has its own bounds.
    if (error.empty() && !(scalar.value >= low && scalar.value <= high)) {
      error = fmt::format("must be from {} to {}, found {}",
                          key.has_min() ? bound_text(key.min()) : fmt::format("{}", low),
                          key.has_max() ? bound_text(key.max()) : fmt::format("{}", high),
                          shown(node.text));
    }
    if (error.empty()) {
      const std::string range = out_of_range(key, static_cast<double>(scalar.value));
      if (!range.empty()) error = fmt::format("{}, found {}", range, shown(node.text));
    }
    if (!error.empty()) {
      problem(node, path, key.auto_word() ? error + " (or auto)" : error);
      return;
    }
    store(slot, convert(scalar.value));
  };
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return read(parse_integer(node.text), std::int64_t{std::numeric_limits<std::int32_t>::min()},
                  std::int64_t{std::numeric_limits<std::int32_t>::max()},
                  [](auto v) { return static_cast<std::int32_t>(v); });
    case FieldDescriptor::CPPTYPE_INT64:
      return read(parse_integer(node.text), std::numeric_limits<std::int64_t>::min(),
                  std::numeric_limits<std::int64_t>::max(),
                  [](auto v) { return static_cast<std::int64_t>(v); });
    case FieldDescriptor::CPPTYPE_UINT64:
      return read(parse_unsigned(node.text), std::uint64_t{0},
                  std::numeric_limits<std::uint64_t>::max(),
                  [](auto v) { return static_cast<std::uint64_t>(v); });
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return read(parse_real(node.text), std::numeric_limits<double>::lowest(),
                  std::numeric_limits<double>::max(),
                  [](auto v) { return static_cast<double>(v); });
    default:
      DTRAIN_CHECK(false, "field {} has a type that recipes do not use", field.full_name());
  }
}

void Reader::read_flag(const YamlNode& node, const std::string& path, Slot slot) {
  if (node.in_quotes) {
    problem(
        node, path,
        fmt::format("expected true or false, found {}; write it without quotes", node.describe()));
    return;
  }
  const Scalar<bool> flag = parse_flag(node.text);
  if (flag.error.empty()) {
    store(slot, flag.value);
  } else {
    problem(node, path, flag.error);
  }
}

void Reader::read_text(const YamlNode& node, const std::string& path, Slot slot) {
  const config::Key& key = key_of(*slot.field);
  const std::vector<std::string> choices(key.choice().begin(), key.choice().end());
  if (!choices.empty() && std::find(choices.begin(), choices.end(), node.text) == choices.end()) {
    const std::string near = nearest_word(node.text, choices);
    problem(node, path,
            fmt::format("must be {}, found {}{}", join_or(choices), shown(node.text),
                        near.empty() ? "" : fmt::format("; did you mean {}?", near)));
    return;
  }
  std::string text = node.text;
  const bool is_path = key.path() || key.path_from_working_directory();
  if (text.empty() && (key.required() || key.path_from_working_directory())) {
    problem(node, path, "the text must not be empty");
    return;
  }
  if (text.find('\0') != std::string::npos) {
    problem(node, path, "the text must not hold a zero byte");
    return;
  }
  if (is_path && !text.empty()) {
    const bool from_file = key.path() && !node.place.on_command_line();
    const std::filesystem::path& folder = from_file ? folders_.file : folders_.working;
    text = absolute_path(folder, text);
  }
  store(slot, text);
}

void Reader::read_amount(const YamlNode& node, const std::string& path, Slot slot) {
  const config::Key& key = key_of(*slot.field);
  config::Amount amount;
  if (!node.text.empty() && node.text.back() == '%') {
    const Scalar<double> share = parse_real(node.text.substr(0, node.text.size() - 1));
    // Nothing to use, or nothing left: where at least one sample is asked for, a share has to be
    // more than 0 %, otherwise less than 100 %.
    const bool some = key.min() > 0;
    const bool possible =
        some ? share.value > 0 && share.value <= 100 : share.value >= 0 && share.value < 100;
    if (!share.error.empty() || !possible) {
      problem(node, path,
              fmt::format("expected {}, found {}",
                          some ? "a share of more than 0% and at most 100%"
                               : "a share from 0% to less than 100%",
                          shown(node.text)));
      return;
    }
    amount.set_percent(share.value);
  } else {
    if (node.in_quotes) {
      problem(node, path,
              fmt::format("expected {}, found {}; write it without quotes", expected(*slot.field),
                          node.describe()));
      return;
    }
    const Scalar<std::int64_t> samples = parse_integer(node.text);
    if (!samples.error.empty()) {
      problem(node, path, fmt::format("{} (or a share such as 90%)", samples.error));
      return;
    }
    const std::string range = out_of_range(key, static_cast<double>(samples.value));
    if (!range.empty()) {
      problem(node, path, fmt::format("{}, found {}", range, shown(node.text)));
      return;
    }
    amount.set_samples(samples.value);
  }
  slot.message->GetReflection()->MutableMessage(slot.message, slot.field)->CopyFrom(amount);
}

}  // namespace

std::string absolute_path(const std::filesystem::path& folder, const std::string& path) {
  std::filesystem::path whole = (folder / path).lexically_normal();
  if (!whole.has_filename() && whole != whole.root_path()) whole = whole.parent_path();
  return whole.string();
}

void read_recipe(const YamlNode& root, const KindTable& kinds, const Folders& folders,
                 config::TrainConfig& recipe, Given& given, Problems& problems) {
  Reader(root, kinds, folders, given, problems).read_section(root, "", recipe);
  spell_out_defaults(recipe);
}

}  // namespace dtrain::config_internal
