// The cards of one job of `muster launch`: planned before anything starts, then taken, and held for
// as long as a process of the job lives.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launch/gpu/card_plan.h"
#include "launch/gpu/gpu_probe.h"
#include "launch/gpu/take_cards.h"
#include "launch/gpu/worker_place.h"
#include "proto/config_fwd.h"

namespace muster {

// What else decides which cards a job gets.
struct CardTerms {
  std::string typed;   // worker.devices was given on the command line, in these words
  bool waits = false;  // --wait: for cards that are busy now
  // Why no worker could compute on a card (WhyNoGpuBackend), or "". A job that says nothing of
  // devices takes no cards then.
  std::string no_backend;
};

class JobCards {
 public:
  // Of a config that is not resolved yet. Throws Error(kUsage), and Error(kFailure) where there is
  // no card and the job names one or has worker.soft_placement=false, or where fewer are idle than
  // its workers need.
  JobCards(const config::Config& config, const std::string& config_path, const CardTerms& terms);

  // Whether the job asks for cards, or would take idle ones.
  bool asked() const { return asked_; }
  // Whether there are cards to take, and for how many workers.
  bool wanted() const { return plan_.wish.has_value(); }
  uint32_t workers() const { return plan_.workers; }
  const std::string& origin() const { return origin_; }  // how they were asked for
  bool named() const { return named_; }                  // by index or UUID

  // See TakeCards. Throws Error.
  void Take(const TakeOptions& options);

  // Why nothing computes on these cards, in words; "" (at first) if the workers do.
  void SetUnused(const std::string& reason) { unused_ = reason; }
  const std::string& unused() const { return unused_; }

  // For the header: which cards and why, or why none. Empty where none were asked for.
  std::vector<std::string> Lines() const;
  // One for each rank; empty on the CPU.
  std::vector<WorkerPlace> Places() const;
  // Where a worker is to run that takes the place of this rank's, which has ended: as before,
  // unless the card is lost, and another one that the job may have is idle, which it takes then.
  WorkerPlace PlaceAgain(uint32_t rank);

 private:
  bool TakeInsteadOf(size_t card);
  void CheckComputeModes() const;

  std::unique_ptr<GpuProbe> probe_;
  CardPlan plan_;
  std::string origin_;
  bool asked_ = false, named_ = false;
  std::string remark_;  // on the environment
  std::string unused_;
  uint32_t workers_per_card_ = 1;
  std::unique_ptr<TakenCards> taken_;
  std::map<size_t, Ticket> instead_;  // of cards taken in place of others, by their places
};

// Why workers of this config cannot compute on a card: worker.backend=CPU, or no plugin beside
// muster-worker, where it would look for it. "" if they can.
std::string WhyNoGpuBackend(const config::Config& config, const std::string& worker_program);

// "card 2 (GPU-1b2c3d4e, NVIDIA H100, 80.0 GB)"
std::string CardText(const Gpu& gpu);

// What a process of this card gets: the environment, and, of the cores that this process may use,
// those beside the card.
WorkerPlace PlaceOf(const Gpu& gpu);

}  // namespace muster
