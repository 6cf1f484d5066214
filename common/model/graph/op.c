/* Implement op.h. */
#include "common/model/graph/op.h"

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
#include "common/model/graph/ops.def"
#undef GP_OP
    };

    return (unsigned)code < GP_OP_COUNT ? names[code] : "unknown";
}
