// Who uses which card since when, in words.
#pragma once

#include <string>
#include <vector>

#include "launch/gpu/gpu.h"
#include "launch/gpu/lock_folder.h"
#include "launch/gpu/ticket.h"

namespace muster {

// "anna's launch configs/cifar10.txtpb (pid 4242, 4 cards)"
std::string JobText(const SeenTicket& ticket);

// The job that holds this card, or null.
const SeenTicket* HolderOf(const std::vector<SeenTicket>& tickets, const std::string& uuid);

// Those of these cards that a job could take now.
std::vector<std::string> IdleCards(const GpuSnapshot& seen, const LockFolder& folder,
                                   const std::vector<std::string>& uuids, double free_share);

// A line for each of these cards: "card 2: idle", "card 3: anna's … since 10:31", and why a card
// that no job holds is not idle, or who else has locked it.
std::vector<std::string> UsageLines(const GpuSnapshot& seen, const LockFolder& folder,
                                    const std::vector<std::string>& uuids, double free_share);

}  // namespace muster
