#include "worker/arguments.h"

#include "common/config/config.h"
#include "proto/config.pb.h"

namespace muster {

config::Config LoadConfigOf(const WorkerArguments& arguments) {
  std::vector<Setting> settings;
  for (const std::string& text : arguments.set) settings.push_back(ParseSetting(text));
  return LoadConfig(arguments.config, settings);
}

}  // namespace muster
