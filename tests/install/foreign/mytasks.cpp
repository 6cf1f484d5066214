#include <cstdint>

#include <gradpool/task.h>

GP_TASK gp_status index_of(gp_task *task, gp_error *err)
{
    std::uint32_t index = gp_task_index(task);

    return gp_task_result(task, &index, sizeof(index), err);
}
