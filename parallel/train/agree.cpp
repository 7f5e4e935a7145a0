#include "dtrain/parallel/train/agree.h"

#include <map>
#include <sstream>

#include "dtrain/core/base/hash.h"
#include "dtrain/parallel/train/gather.h"

namespace dtrain {

void agree(Communicator& comm, const std::vector<Fact>& facts) {
  for (const Fact& fact : facts) {
    const std::vector<std::string> values = gather_texts(comm, fact.value);
    for (int rank = 1; rank < comm.size(); ++rank) {
      if (values[rank] == values[0]) continue;
      throw ConfigError(fmt::format("ranks differ in {}: rank 0 has {}, rank {} has {}; {}",
                                    fact.name, values[0], rank, values[rank], fact.remedy));
    }
  }
}

namespace {

using Shapes = std::map<std::string, std::string>;  // name -> "[10, 32]"

Shapes shapes_from_lines(const std::string& lines) {
  Shapes shapes;
  std::istringstream stream(lines);
  for (std::string line; std::getline(stream, line);) {
    const std::size_t space = line.find(' ');
    shapes[line.substr(0, space)] = line.substr(space + 1);
  }
  return shapes;
}

[[noreturn]] void throw_difference(const Shapes& first, const Shapes& other, int rank) {
  const auto shape_in = [](const Shapes& shapes, const std::string& name) {
    const auto found = shapes.find(name);
    return found == shapes.end() ? std::string("does not have it") : found->second;
  };
  Shapes all = first;
  all.insert(other.begin(), other.end());
  for (const auto& [name, shape] : all) {
    const std::string a = shape_in(first, name), b = shape_in(other, name);
    if (a == b) continue;
    throw ConfigError(fmt::format("{}: rank 0 {}, rank {} {}; all ranks must have the same model",
                                  name, a, rank, b));
  }
  throw ConfigError(
      fmt::format("ranks 0 and {} have the same parameters in different order", rank));
}

}  // namespace

void agree_on_model(Communicator& comm, const ArenaLayout& layout) {
  std::string lines;
  for (const Parameter* parameter : layout.parameters()) {
    lines += parameter->name + " " + to_string(parameter->shape) + "\n";
  }
  for (const Buffer* buffer : layout.buffers()) {
    lines += buffer->name + " " + to_string(buffer->shape) + "\n";
  }
  const std::vector<std::string> all = gather_texts(comm, lines);
  for (int rank = 1; rank < comm.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw_difference(shapes_from_lines(all[0]), shapes_from_lines(all[rank]), rank);
  }
}

std::string check_same_weights(Communicator& comm, const ParameterArena& arena) {
  const std::vector<std::string> digests = gather_texts(comm, arena.digest());
  bool same = true;
  for (const std::string& digest : digests) same = same && digest == digests[0];
  if (same) return digests[0];
  std::string lines;
  for (const Parameter* p : arena.layout().parameters()) {
    lines += p->name + " " +
             hash_hex(std::as_bytes(arena.weights().subspan(p->offset, p->elements()))) + "\n";
  }
  for (const Buffer* b : arena.layout().buffers()) {
    lines += b->name + " " +
             hash_hex(std::as_bytes(arena.buffers().subspan(b->offset, b->shape.elements()))) +
             "\n";
  }
  const std::vector<std::string> all = gather_texts(comm, lines);
  const Shapes first = shapes_from_lines(all[0]);
  for (int rank = 1; rank < comm.size(); ++rank) {
    std::string names;
    for (const auto& [name, digest] : shapes_from_lines(all[rank])) {
      if (first.at(name) != digest) names += (names.empty() ? "" : ", ") + name;
    }
    if (names.empty()) continue;
    throw InternalError(fmt::format(
        "check_sync: the weights of rank {} differ from those of rank 0 in {}; suspect the memory "
        "or the processor of one of the two hosts; go on from the last checkpoint with --resume",
        rank, names));
  }
  throw InternalError("check_sync: the weights' digests differ, but no tensor does");
}

}  // namespace dtrain
