/* Implement sweep_repeats.h. */
#include "client/cli/sweep/sweep_repeats.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { VALUE_BYTES = 40 };

static bool counts(const sweep *core, uint32_t number)
{
    const sweep_trial *trial = sweep_find(core, number);

    return trial->repeat > 0 && trial->of == sweep_best(core) && trial->state == SWEEP_DONE;
}

sweep_repeats sweep_repeats_of(const sweep *core)
{
    sweep_repeats repeats = { .mean = NAN, .std = NAN };
    double sum = 0, squares = 0;

    for (uint32_t i = 1; i <= sweep_count(core); i++) {
        if (!counts(core, i))
            continue;
        repeats.count++;
        sum += sweep_find(core, i)->value;
    }
    if (repeats.count == 0)
        return repeats;
    repeats.mean = sum / repeats.count;
    for (uint32_t i = 1; i <= sweep_count(core); i++)
        if (counts(core, i))
            squares += pow(sweep_find(core, i)->value - repeats.mean, 2);
    if (repeats.count > 1)
        repeats.std = sqrt(squares / (repeats.count - 1));
    return repeats;
}

/* Format a value: an accuracy in percent. */
static const char *value_text(const sweep_plan *plan, double value, char text[VALUE_BYTES])
{
    if (strstr(plan->objective, "accuracy") != NULL)
        snprintf(text, VALUE_BYTES, "%.2f %%", 100 * value);
    else
        snprintf(text, VALUE_BYTES, "%.4g", value);
    return text;
}

void sweep_repeats_show(const sweep *core, const sweep_plan *plan)
{
    const sweep_repeats repeats = sweep_repeats_of(core);
    char text[VALUE_BYTES];
    const char *before = ": ";

    if (repeats.count == 0)
        return;
    printf("repeated with %" PRIu32 " other seed%s: mean %s", repeats.count, repeats.count == 1 ? "" : "s",
           value_text(plan, repeats.mean, text));
    if (!isnan(repeats.std))
        printf(", standard deviation %s", value_text(plan, repeats.std, text));
    for (uint32_t i = 1; i <= sweep_count(core); i++) {
        if (!counts(core, i))
            continue;
        printf("%s%s", before, value_text(plan, sweep_find(core, i)->value, text));
        before = ", ";
    }
    printf("\n");
}
