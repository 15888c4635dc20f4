// `--set path.to.key=value`: one field of a config.
#pragma once

#include "common/config/config.h"
#include "common/config/config_errors.h"
#include "proto/config_fwd.h"

namespace muster {

// Sets one field from text: "run.epochs", "model.layer[2].dropout.rate", "model.layer[conv1].…"
// (an element found by its name). A value is what text format allows; strings need no quotes,
// values of an enum may be in any case, lists are written [3, 3], messages { key: value }. What was
// there is replaced, and so is another member of the same oneof. Mistakes are noted with the
// setting's origin.
void SetField(config::Config& config, const Setting& setting, ConfigErrors& errors);

}  // namespace muster
