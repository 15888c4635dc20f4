// How long the processes of a job go on after a signal to stop.
#pragma once

namespace muster {

// What ends a session signals all of them. The server then needs the others to complete the step
// that is being updated, because it can save nothing in the middle of one.
inline constexpr int kFinishStepSeconds = 3;

}  // namespace muster
