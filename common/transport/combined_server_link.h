// Two server links as one: workers of this host by the local link, all others by ZeroMQ.
#pragma once

#include <memory>

#include "common/link/link.h"

namespace muster {

// `first` is asked first, and its endpoint is hidden behind that of `second`, which is the one
// that workers are told.
std::unique_ptr<ServerLink> Combine(std::unique_ptr<ServerLink> first,
                                    std::unique_ptr<ServerLink> second);

}  // namespace muster
