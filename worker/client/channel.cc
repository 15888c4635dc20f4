#include "worker/client/channel.h"

#include <utility>

#include "common/base/error.h"

namespace muster {

std::unique_ptr<Channel> MakeChannel(std::unique_ptr<ClientLink> link, Channel::Owner& owner) {
  if (link->any_thread()) return MakeDirectChannel(std::move(link), owner);
  return MakeThreadedChannel(std::move(link), owner);
}

std::exception_ptr CommunicationError() {
  try {
    throw;
  } catch (const Error&) {
    return std::current_exception();
  } catch (const std::exception& error) {
    return std::make_exception_ptr(Error(ExitCode::kFailure, "communication: {}", error.what()));
  }
}

}  // namespace muster
