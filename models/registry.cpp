#include "dtrain/models/registry.h"

#include "dtrain/models/convnet.h"
#include "dtrain/models/gpt.h"
#include "dtrain/models/mlp.h"
#include "dtrain/models/resnet.h"

namespace dtrain {

void ModelRegistry::add(
    const KindSchema& schema,
    std::function<std::unique_ptr<Module>(const KindValues&, const ModelInput&)> make) {
  add(schema.name(), schema.prototype(),
      [schema, make = std::move(make)](const google::protobuf::Any& options,
                                       const ModelInput& input) {
        return make(KindValues(options, schema), input);
      });
}

void ModelRegistry::add(const std::string& name, const google::protobuf::Message& prototype,
                        Factory make) {
  kinds_[name] = Kind{&prototype, std::move(make)};
}

std::unique_ptr<Module> ModelRegistry::create(const config::Model& model,
                                              const ModelInput& input) const {
  const auto kind = kinds_.find(model.name());
  if (kind == kinds_.end()) {
    throw ConfigError(fmt::format("model.name: '{}' is not a model of this program", model.name()));
  }
  return kind->second.make(model.options(), input);
}

void ModelRegistry::register_kinds(KindTable& kinds) const {
  for (const auto& [name, kind] : kinds_) kinds.add("model", name, *kind.prototype);
}

void register_builtin_models(ModelRegistry& models) {
  models.add<config::Mlp>("mlp", [](const config::Mlp& options, const ModelInput& input) {
    return std::make_unique<Mlp>(options, input);
  });
  models.add<config::Convnet>("convnet",
                              [](const config::Convnet& options, const ModelInput& input) {
                                return std::make_unique<Convnet>(options, input);
                              });
  models.add<config::Resnet>("resnet", [](const config::Resnet& options, const ModelInput& input) {
    return std::make_unique<Resnet>(options, input);
  });
  models.add<config::Gpt>("gpt", [](const config::Gpt& options, const ModelInput& input) {
    return std::make_unique<Gpt>(options, input);
  });
}

}  // namespace dtrain
