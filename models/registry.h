// The models that a recipe can name. A program adds its own and gets the whole `dtrain` command
// line with it:
//
//   KindSchema schema("two_towers");
//   schema.integer("width", 64, "units of each tower");
//   models.add(schema, [](const KindValues& values, const ModelInput& input) {
//     return std::make_unique<TwoTowers>(input.shape, values.integer("width"));
//   });
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "dtrain/core/config/config.h"
#include "dtrain/core/config/kind_schema.h"
#include "dtrain/core/nn/module.h"
#include "dtrain/models/model_input.h"

namespace dtrain {

class ModelRegistry {
 public:
  // Makes a model for inputs of the given shape; throws ConfigError where they do not fit.
  using Factory = std::function<std::unique_ptr<Module>(const google::protobuf::Any& options,
                                                        const ModelInput& input)>;

  // A kind whose keys are a generated protobuf message.
  template <typename Message, typename Make>
  void add(const std::string& name, Make make) {
    add(name, Message::default_instance(),
        [make](const google::protobuf::Any& options, const ModelInput& input) {
          return std::unique_ptr<Module>(make(unpack<Message>(options), input));
        });
  }
  // A kind whose keys are declared at run time.
  void add(const KindSchema& schema,
           std::function<std::unique_ptr<Module>(const KindValues&, const ModelInput&)> make);

  std::unique_ptr<Module> create(const config::Model& model, const ModelInput& input) const;
  void register_kinds(KindTable& kinds) const;

 private:
  struct Kind {
    const google::protobuf::Message* prototype;
    Factory make;
  };
  void add(const std::string& name, const google::protobuf::Message& prototype, Factory make);
  std::map<std::string, Kind> kinds_;
};

// mlp, convnet, resnet, gpt.
void register_builtin_models(ModelRegistry& models);

}  // namespace dtrain
