#include "cli/view/run_status.h"

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <type_traits>

#include "common/base/error.h"
#include "common/base/json_text.h"
#include "common/base/plain_file.h"
#include "common/base/process_identity.h"

namespace muster {
namespace {

using Json = nlohmann::json;

// Written each second, or twice as often; a busy disk and another host's clock take their part.
constexpr double kStaleSeconds = 30;

// `otherwise` where there is no such value, or one of another type.
template <typename T>
T ValueOf(const Json& json, const char* key, T otherwise) {
  const auto found = json.find(key);
  if (found == json.end()) return otherwise;
  if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->get<T>() : otherwise;
  } else if constexpr (std::is_integral_v<T>) {
    return found->is_number_integer() ? found->get<T>() : otherwise;
  } else {
    return found->is_number() ? found->get<T>() : otherwise;
  }
}

}  // namespace

std::optional<Json> ReadStatus(const std::string& run_dir) {
  const std::string path = run_dir + "/status.json";
  std::ifstream file = ReadPlainFile(path);
  if (!file) return std::nullopt;
  std::stringstream text;
  text << file.rdbuf();
  Json status = ParseJson(text.str());
  if (!status.is_object() || !status.contains("server") || !status["server"].is_object()) {
    throw Error(ExitCode::kFailure, "{}: expected the status of a Muster run, which is not there",
                path);
  }
  return status;
}

bool ServerIsAlive(const Json& status) {
  const Json& server = status["server"];
  const ProcessIdentity writer{.host = ValueOf(server, "host", std::string()),
                               .pid = ValueOf(server, "pid", int64_t{0}),
                               .started = ValueOf(server, "started", uint64_t{0})};
  if (writer.host == HostName()) return IsAlive(writer);
  return StatusAge(status) < kStaleSeconds;
}

double StatusAge(const Json& status) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  return now - ValueOf(status, "unix_time", 0.0);
}

}  // namespace muster
