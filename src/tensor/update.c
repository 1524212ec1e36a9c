/* update.c - what each rule keeps. */
#include "tensor/update.h"

int update_slots(update_rule r, double mu, bool amsgrad, bool centered)
{
    switch (r) {
    case UPDATE_SGD:
    case UPDATE_SGD_TORCH: return mu != 0.0;
    case UPDATE_ADAM:
    case UPDATE_ADAM_TORCH: return 1 | 2 | (amsgrad ? 4 : 0);
    case UPDATE_RMSPROP:
    case UPDATE_RMSPROP_TORCH: return 1 | (mu != 0.0 ? 2 : 0) | (centered ? 4 : 0);
    case UPDATE_RULES: break;
    }
    return 0;
}
