#include "common/model/kind.h"

#include <stddef.h>
#include <string.h>

#include "common/model/own.h"

#define GP_KIND(name) extern const gp_kind gp_kind_##name;
#include "common/model/kinds.def"
#undef GP_KIND

const gp_kind *const gp_kinds[] = {
#define GP_KIND(name) &gp_kind_##name,
#include "common/model/kinds.def"
#undef GP_KIND
    NULL,
};

const gp_kind *gp_kind_find(const char *name)
{
    for (const gp_kind *const *kind = gp_kinds; *kind != NULL; kind++)
        if (strcmp((*kind)->name, name) == 0)
            return *kind;
    return gp_own_find(name);
}

gp_op gp_op_init(gp_opcode code)
{
    gp_op op = { .code = code };

    for (int i = 0; i < GP_OP_VALUES_MAX; i++)
        op.in[i] = op.out[i] = GP_NO_VALUE;
    return op;
}

const char *gp_op_name(gp_opcode code)
{
    static const char *const names[] = {
#define GP_OP(opcode, name) [opcode] = name,
#include "common/model/ops.def"
#undef GP_OP
    };

    return (unsigned)code < GP_OP_COUNT ? names[code] : "unknown";
}
