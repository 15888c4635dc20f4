#include "tests/cuda/software_gpu/control.h"

#include <fmt/format.h>

#include <cstdlib>
#include <sstream>

#include "tests/cuda/software_gpu/device.h"

namespace muster::software_gpu {

Options OptionsOfEnvironment() { return {}; }

void Reset(const Options& options) { Device::Get().Reset(options); }
void FailCall(const std::string& call, int nth, int status) {
  Device::Get().FailCall(call, nth, status);
}
int Calls(const std::string& call) { return Device::Get().Calls(call); }
void ForgetFailure() { Device::Get().ForgetFailure(); }
std::vector<std::string> Leaks() { return Device::Get().Leaks(); }

Step::Step() { Device::Get().set_steps(1); }
Step::~Step() { Device::Get().set_steps(-1); }

}  // namespace muster::software_gpu
