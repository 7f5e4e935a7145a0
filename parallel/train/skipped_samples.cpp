#include "dtrain/parallel/train/skipped_samples.h"

#include "dtrain/parallel/train/gather.h"

namespace dtrain {

using nlohmann::ordered_json;

void SkippedSamples::add(const std::string& data, const SkippedSample& sample) {
  if (all_.emplace(data, sample.id).second) list({data, sample.id}, sample.reason);
}

void SkippedSamples::list(const Key& key, const std::string& reason) {
  listed_.emplace(key, reason);
  if (listed_.size() > most_listed) listed_.erase(std::prev(listed_.end()));
}

ordered_json SkippedSamples::gather_to_json(Communicator& comm) const {
  ordered_json mine = {{"all", all_}, {"listed", listed_}};
  SkippedSamples whole;
  // Reasons hold what stands in files: bytes that are no UTF-8 must not stop a run.
  for (const std::string& text :
       gather_texts(comm, mine.dump(-1, ' ', false, ordered_json::error_handler_t::replace))) {
    const ordered_json rank = ordered_json::parse(text);
    whole.all_.merge(rank.at("all").get<std::set<Key>>());
    for (const auto& [key, reason] : rank.at("listed").get<std::map<Key, std::string>>()) {
      whole.list(key, reason);
    }
  }
  ordered_json samples = ordered_json::array();
  for (const auto& [key, reason] : whole.listed_) {
    samples.push_back({{"data", key.first}, {"id", key.second}, {"reason", reason}});
  }
  return {{"count", whole.all_.size()}, {"samples", samples}};
}

}  // namespace dtrain
