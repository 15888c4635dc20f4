// How long a step takes on many hosts, in virtual time: the real server, clients and relays on
// hosts whose network cards have a speed. Computing and updating take no time.
#pragma once

namespace muster::testing {

struct ManyHosts {
  int hosts = 2, workers = 2;  // workers of each host
  double gbits = 1;            // of each host, in each direction
  double megabytes = 100;      // of the model
  enum class Sums {
    kNone,  // each worker sends its gradient to the server
    kFlat,  // relays send one sum for each host to the server
    kTree   // relays form the tree of PlanRelay (cli/job/workers_over_ssh.h)
  } sums = Sums::kTree;
};

// Throws Error(kFailure) if the run is wrong.
double SecondsPerStep(const ManyHosts& many);

}  // namespace muster::testing
