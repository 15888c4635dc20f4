#include "tests/cuda/software_gpu/control.h"

#include <cstdint>
#include <cstdlib>
#include <exception>
#include <map>
#include <sstream>

#include "common/base/error.h"
#include "tests/cuda/software_gpu/device.h"

namespace muster::software_gpu {

namespace {

// Parses a number from the environment. Ends the process if it is invalid.
int64_t NumberOf(const std::string& text) {
  size_t used = 0;
  int64_t number = 0;
  try {
    number = std::stoll(text, &used);
  } catch (const std::exception&) {
    used = text.size() + 1;
  }
  if (used == text.size()) return number;
  throw Error(ExitCode::kUsage, "MUSTER_SOFTWARE_GPU: expected a number, got '{}'", text);
}

void SetOption(Options& options, const std::string& name, const std::string& value) {
  const auto number = [&] { return NumberOf(value); };
  if (name == "seed") {
    options.seed = static_cast<uint64_t>(number());
  } else if (name == "delay_us") {
    options.delay_us = static_cast<int>(number());
  } else if (name == "memory_bytes") {
    options.memory_bytes = static_cast<size_t>(number());
  } else if (name == "devices") {
    options.devices = static_cast<int>(number());
  } else if (name == "read_only_registration") {
    options.read_only_registration = number() != 0;
  } else if (name == "wrong_products") {
    options.wrong_products = number() != 0;
  } else if (name == "lost_card_file") {
    options.lost_card_file = value;
  } else if (name == "fail") {
    const size_t first = value.find(':');
    const size_t last = value.rfind(':');
    if (first == last) {
      throw Error(ExitCode::kUsage, "MUSTER_SOFTWARE_GPU: expected fail=CALL:NTH:STATUS, got '{}'",
                  value);
    }
    options.faults.push_back({value.substr(0, first),
                              static_cast<int>(NumberOf(value.substr(first + 1, last - first - 1))),
                              static_cast<int>(NumberOf(value.substr(last + 1)))});
  } else {
    throw Error(ExitCode::kUsage, "MUSTER_SOFTWARE_GPU: unknown option '{}'", name);
  }
}

}  // namespace

Options OptionsOfEnvironment() {
  Options options;
  const char* const given = std::getenv("MUSTER_SOFTWARE_GPU");
  std::istringstream text(given == nullptr ? "" : given);
  for (std::string part; std::getline(text, part, ',');) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos) {
      throw Error(ExitCode::kUsage, "MUSTER_SOFTWARE_GPU: expected NAME=VALUE, got '{}'", part);
    }
    SetOption(options, part.substr(0, equals), part.substr(equals + 1));
  }
  return options;
}

void Reset(const Options& options) { Device::Get().Reset(options); }
void FailCall(const std::string& call, int nth, int status) {
  Device::Get().FailCall(call, nth, status);
}
int Calls(const std::string& call) { return Device::Get().Calls(call); }
std::map<std::string, int> AllCalls() { return Device::Get().AllCalls(); }
void ForgetFailure() { Device::Get().ForgetFailure(); }
std::vector<std::string> Leaks() { return Device::Get().Leaks(); }

void QueueWork(int stream, std::function<void()> work) {
  Stream* const on = Device::Get().InSlot(stream);
  MUSTER_CHECK(on != nullptr);
  on->Push(Device::Get().known(), "a test's own work", nullptr,
           [work = std::move(work)](const Work&) { work(); });
}

Hold::Hold() { Device::Get().set_holds(1); }
Hold::~Hold() { Device::Get().set_holds(-1); }

Step::Step() { Device::Get().set_steps(1); }
Step::~Step() { Device::Get().set_steps(-1); }

}  // namespace muster::software_gpu
