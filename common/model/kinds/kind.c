#include "common/model/graph/kind.h"

#include <stddef.h>
#include <string.h>

#include "common/model/graph/custom.h"

#define GP_KIND(name) extern const gp_kind gp_kind_##name;
#include "common/model/kinds/kinds.def"
#undef GP_KIND

const gp_kind *const gp_kinds[] = {
#define GP_KIND(name) &gp_kind_##name,
#include "common/model/kinds/kinds.def"
#undef GP_KIND
    NULL,
};

const gp_param gp_no_params[] = { { 0 } };

gp_status gp_kind_infer(gp_infer *infer, gp_error *err)
{
    infer->output = infer->inputs[0];
    return infer->kind->infer == NULL ? GP_OK : infer->kind->infer(infer, err);
}

const gp_kind *gp_kind_find(const char *name)
{
    for (const gp_kind *const *kind = gp_kinds; *kind != NULL; kind++)
        if (strcmp((*kind)->name, name) == 0)
            return *kind;
    return gp_custom_find(name);
}
