#include "dtrain/core/config/yaml_tree.h"

#include <algorithm>
#include <cstddef>
#include <istream>
#include <map>
#include <streambuf>
#include <utility>

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

namespace dtrain::config_internal {

// Note [What yaml-cpp lets pass]
//
// yaml-cpp 0.7 reads these without a word, so they are refused here, before or after it:
//   - bytes 0x00 to 0x1F (0x04 even ends the text), bytes that are not UTF-8, UTF-16 by guess;
//   - a quote that is never closed: the text ends with the file;
//   - tabs as indentation, in some places, and a misleading message in others;
//   - the documents after the first, unless they are asked for;
//   - equal keys, tags (!!int), and merge keys, which it hands on as ordinary text;
//   - aliases of aliases of aliases: a few lines that expand to billions of nodes.

namespace {

constexpr int kMaxDepth = 32;
constexpr std::size_t kMaxNodes = 50'000;

// Stops the parser; carries what is wrong.
struct Refusal {
  Place place;
  std::string what;
};

class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {
    starts_.push_back(0);
    for (std::size_t i = 0; i < text.size(); ++i) {
      // A line ends with \n, \r\n or \r, as for yaml-cpp.
      if (text[i] == '\n' || (text[i] == '\r' && (i + 1 == text.size() || text[i + 1] != '\n'))) {
        starts_.push_back(i + 1);
      }
    }
  }

  Place place(std::size_t offset, int override_index) const {
    const auto next = std::upper_bound(starts_.begin(), starts_.end(), offset);
    const auto line = static_cast<std::size_t>(next - starts_.begin());
    return {override_index, static_cast<int>(line),
            static_cast<int>(offset - starts_[line - 1]) + 1};
  }

  // Inverse of place(), for yaml-cpp's marks, which count from 0.
  std::size_t offset(const YAML::Mark& mark) const {
    if (mark.line < 0 || static_cast<std::size_t>(mark.line) >= starts_.size()) return text_.size();
    return std::min(text_.size(), starts_[static_cast<std::size_t>(mark.line)] +
                                      static_cast<std::size_t>(std::max(mark.column, 0)));
  }

  std::size_t count() const { return starts_.size(); }
  std::string_view line(std::size_t index) const {
    const std::size_t end = index + 1 < starts_.size() ? starts_[index + 1] : text_.size();
    return text_.substr(starts_[index], end - starts_[index]);
  }
  std::size_t start(std::size_t index) const { return starts_[index]; }
  std::string_view text() const { return text_; }

 private:
  std::string_view text_;
  std::vector<std::size_t> starts_;
};

// Bytes of the UTF-8 sequence at `text`, 0 if there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  if (first == 0xE0 && byte(1) < 0xA0) return 0;   // overlong
  if (first == 0xED && byte(1) >= 0xA0) return 0;  // surrogate
  if (first == 0xF0 && byte(1) < 0x90) return 0;   // overlong
  if (first == 0xF4 && byte(1) >= 0x90) return 0;  // above U+10FFFF
  return length;
}

void check_bytes(const Lines& lines, int override_index) {
  const std::string_view text = lines.text();
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF") ||
      text.substr(0, 4).find('\0') != std::string_view::npos) {
    throw Refusal{{override_index, 0, 0}, "the text is UTF-16 or UTF-32; save it as UTF-8"};
  }
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\r' && byte != '\t') || byte == 0x7F) {
      throw Refusal{lines.place(i, override_index),
                    fmt::format("control character 0x{:02x}; is this a text file?", byte)};
    }
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) {
      throw Refusal{lines.place(i, override_index),
                    fmt::format("byte 0x{:02x} is not UTF-8; save the file as UTF-8", byte)};
    }
    i += length;
  }
}

// Also refuses tabs before text that continues a value, where YAML would let them stand: one rule.
void check_tabs(const Lines& lines, int override_index, Problems& problems) {
  for (std::size_t i = 0; i < lines.count(); ++i) {
    const std::string_view line = lines.line(i);
    const std::size_t content = line.find_first_not_of(" \t\r\n");
    if (content == std::string_view::npos || line[content] == '#') continue;
    const std::size_t tab = line.substr(0, content).find('\t');
    if (tab == std::string_view::npos) continue;
    problems.add(lines.place(lines.start(i) + tab, override_index), "",
                 fmt::format("line {}: tab used for indentation, use spaces", i + 1));
  }
}

// True if the scalar that begins at `offset` (maybe with an anchor before it) is in quotes that are
// never closed.
bool unclosed_quote(std::string_view text, std::size_t offset) {
  while (offset < text.size() && text[offset] == '&') {
    offset = std::min(text.find_first_of(" \t\r\n", offset), text.size());
    offset = std::min(text.find_first_not_of(" \t\r\n", offset), text.size());
  }
  if (offset >= text.size()) return false;
  const char quote = text[offset];
  if (quote != '"' && quote != '\'') return false;
  for (std::size_t i = offset + 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\') {
      ++i;
    } else if (text[i] == quote) {
      if (quote == '"' || i + 1 >= text.size() || text[i + 1] != '\'') return false;
      ++i;  // '' within single quotes
    }
  }
  return true;
}

// Builds the tree from yaml-cpp's events.
class Builder : public YAML::EventHandler {
 public:
  Builder(const Lines& lines, int override_index)
      : lines_(lines), override_index_(override_index) {}

  YamlNode take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (started_) {
      throw Refusal{place(mark), "a second document begins here; a recipe is one document"};
    }
    started_ = true;
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(make(YamlNode::Kind::empty, mark), anchor);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) {
      throw Refusal{place(mark), "an alias (*) stands inside the value that it refers to"};
    }
    const Anchored& anchored = found->second;
    count_nodes(anchored.nodes, mark);
    check_depth(anchored.depth, mark);
    if (!open_.empty()) open_.back().depth = std::max(open_.back().depth, anchored.depth + 1);
    place_value(anchored.node);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    // yaml-cpp's own tags: ? for plain text, ! for text in quotes and block styles.
    const bool plain = tag == "?" || tag.empty();
    if (!plain && tag != "!") refuse_tag(mark, tag);
    if (!plain && unclosed_quote(lines_.text(), lines_.offset(mark))) {
      throw Refusal{place(mark), "the quote that begins here is never closed"};
    }
    YamlNode node = make(YamlNode::Kind::scalar, mark);
    node.text = value;
    node.in_quotes = !plain;
    add(std::move(node), anchor);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(YamlNode::Kind::list, mark, tag, anchor);
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(YamlNode::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { end(); }

 private:
  // A list or map whose end has not come yet.
  struct Open {
    YamlNode node;
    YAML::anchor_t anchor = 0;
    std::size_t nodes_before = 0;
    int depth = 1;         // of the node and what it holds so far
    bool has_key = false;  // the last entry's value is still to come
  };
  struct Anchored {
    YamlNode node;
    std::size_t nodes = 1;
    int depth = 0;
  };

  Place place(const YAML::Mark& mark) const {
    return {override_index_, mark.line + 1, mark.column + 1};
  }

  [[noreturn]] void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    throw Refusal{place(mark), fmt::format("tag {} is not supported: the key decides the type; "
                                           "leave the tag out",
                                           shown(tag))};
  }

  YamlNode make(YamlNode::Kind kind, const YAML::Mark& mark) {
    count_nodes(1, mark);
    YamlNode node;
    node.kind = kind;
    node.place = place(mark);
    return node;
  }

  void count_nodes(std::size_t more, const YAML::Mark& mark) {
    nodes_ += more;
    if (nodes_ > kMaxNodes) {
      throw Refusal{place(mark),
                    fmt::format("more than {} values (aliases count each time)", kMaxNodes)};
    }
  }

  void check_depth(int inner, const YAML::Mark& mark) const {
    if (static_cast<int>(open_.size()) + inner > kMaxDepth) {
      throw Refusal{place(mark), fmt::format("nested deeper than {} levels", kMaxDepth)};
    }
  }

  void begin(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
             YAML::anchor_t anchor) {
    if (tag != "?" && tag != "!" && !tag.empty()) refuse_tag(mark, tag);
    check_depth(1, mark);
    Open open;
    open.nodes_before = nodes_;
    open.node = make(kind, mark);
    open.anchor = anchor;
    open_.push_back(std::move(open));
  }

  void end() {
    Open open = std::move(open_.back());
    open_.pop_back();
    if (!open_.empty()) open_.back().depth = std::max(open_.back().depth, open.depth + 1);
    if (open.anchor) anchors_[open.anchor] = {open.node, nodes_ - open.nodes_before, open.depth};
    place_value(std::move(open.node));
  }

  void add(YamlNode node, YAML::anchor_t anchor) {
    if (anchor) anchors_[anchor] = {node, 1, 0};
    place_value(std::move(node));
  }

  void place_value(YamlNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& open = open_.back();
    if (open.node.kind == YamlNode::Kind::list) {
      open.node.items.push_back(std::move(node));
    } else if (open.has_key) {
      // yaml-cpp places a value that is not there where the next thing begins.
      const Place& key = open.node.entries.back().place;
      if (node.kind == YamlNode::Kind::empty && node.place.line != key.line) node.place = key;
      open.node.entries.back().value = std::move(node);
      open.has_key = false;
    } else {
      if (node.kind != YamlNode::Kind::scalar) {
        throw Refusal{node.place, fmt::format("a key must be a word, found {}", node.describe())};
      }
      open.node.entries.push_back({std::move(node.text), node.place, {}});
      open.has_key = true;
    }
  }

  const Lines& lines_;
  int override_index_;
  bool started_ = false;
  YamlNode root_;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Anchored> anchors_;
  std::size_t nodes_ = 0;
};

// What yaml-cpp's terse messages mean to the writer of the file.
std::string plain_words(const std::string& message) {
  namespace msg = YAML::ErrorMsg;
  if (message == msg::MAP_VALUE) {
    return "a ':' where no value can stand: check the indentation of this line, or put text that "
           "holds ': ' in quotes";
  }
  if (message == msg::MAP_KEY || message == msg::BLOCK_ENTRY || message == msg::END_OF_MAP ||
      message == msg::END_OF_SEQ) {
    return "this line does not fit what stands before it: check its indentation";
  }
  if (message == msg::END_OF_SEQ_FLOW)
    return "a list that begins with '[' lacks its ']' or a comma";
  if (message == msg::END_OF_MAP_FLOW) {
    return "a section that begins with '{' lacks its '}' or a comma";
  }
  if (message == msg::FLOW_END) return "a ']' or '}' that nothing opened";
  if (message == msg::UNKNOWN_ANCHOR) {
    return "alias (*) of an anchor (&) that is not defined before; put text that begins with '*' "
           "in quotes";
  }
  if (message == msg::TAB_IN_INDENTATION) return "tab used for indentation, use spaces";
  if (message == "bad file") return "nested too deeply";
  return "not valid YAML: " + message;
}

// Reads from memory without a copy.
class ViewBuffer : public std::streambuf {
 public:
  explicit ViewBuffer(std::string_view view) {
    char* begin = const_cast<char*>(view.data());
    setg(begin, begin, begin + view.size());
  }
};

}  // namespace

const YamlNode* YamlNode::find(std::string_view key) const {
  for (const YamlEntry& entry : entries) {
    if (entry.key == key) return &entry.value;
  }
  return nullptr;
}

YamlNode* YamlNode::find(std::string_view key) {
  return const_cast<YamlNode*>(std::as_const(*this).find(key));
}

std::string YamlNode::describe() const {
  switch (kind) {
    case Kind::empty:
      return "an empty value";
    case Kind::scalar:
      return in_quotes ? "the text " + shown(text) + " in quotes" : shown(text);
    case Kind::list:
      return "a list";
    case Kind::map:
      return "a section";
  }
  return "";
}

std::optional<YamlNode> parse_yaml(std::string_view text, Problems& problems, int override_index) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // byte order mark
  const Lines lines(text);
  try {
    check_bytes(lines, override_index);
    const std::size_t before = problems.size();
    check_tabs(lines, override_index, problems);
    if (problems.size() > before) return std::nullopt;

    ViewBuffer buffer(text);
    std::istream stream(&buffer);
    YAML::Parser parser(stream);
    Builder builder(lines, override_index);
    while (parser.HandleNextDocument(builder)) {
    }
    return builder.take();
  } catch (const Refusal& refusal) {
    problems.add(refusal.place, "", refusal.what);
  } catch (const YAML::Exception& error) {
    problems.add({override_index, error.mark.line + 1, error.mark.column + 1}, "",
                 plain_words(error.msg));
  }
  return std::nullopt;
}

}  // namespace dtrain::config_internal
