r"""
ElasticFlow: admission by minimum satisfactory shares, the rest by marginal return (Gu et al., ASPLOS 2023, section 4).

A job's sizes are its configurations by devices, each faster than those below.

(1) Minimum satisfactory share: the smallest size g at which the job, holding :math:`\min(g, \text{what is free})` at
    every moment from now on, is complete by its deadline. What is free are the devices that jobs with earlier
    deadlines leave (progressive filling).
(2) Admission: a job that arrives is taken if, in order of deadlines, all that were taken before and it have such a
    share; otherwise it is dropped for good. An admitted job that falls behind keeps what it can get.
(3) What is left goes, one size at a time, to the job with the least additional device-seconds for each device that it
    gains, :math:`(g' \ell / r' - g \ell / r) / (g' - g)` with :math:`\ell` the work left.

Jobs without a deadline take part in (3) alone, after their smallest size in order of arrival. On several pools a job
takes its shares on the first pool on which it has one. A restart counts where the size changes.
"""

from bisect import bisect_right, insort
from collections.abc import Mapping
from math import inf

from taut.data.arrays import Ints
from taut.formulations.jobs.problem import JobsProblem
from taut.solver.jobs.simulate import View

Plan = list[tuple[float, float, int]]
"""From, to, configuration."""


class ElasticFlow:
    """The policy."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._dropped: set[int] = set()
        self._sizes: dict[tuple[int, int], list[int]] = {}

    def decide(self, view: View) -> tuple[Mapping[int, int], float]:
        """Admit who has arrived, hand out the shares, and then the rest."""
        for job in (job for job in view.waiting if job not in self._seen):
            self._seen.add(job)
            if view.problem.deadline[job] < inf and not self._admits(view, job):
                self._dropped.add(job)
        held = self._shares(view)
        free = view.capacity.copy()
        for column in held.values():
            free[view.problem.pool[column]] -= view.problem.gpus[column]
        self._smallest(view, held, free)
        self._grow(view, held, free)
        return held, inf

    def sizes(self, problem: JobsProblem, job: int, pool: int) -> list[int]:
        """Configurations of a job on a pool by devices, each faster than those below."""
        if (job, pool) not in self._sizes:
            kept: list[int] = []
            own = (c for c in problem.columns(job) if problem.pool[c] == pool and problem.fits[c])
            for column in sorted(own, key=lambda c: (int(problem.gpus[c]), -float(problem.rate[c]))):
                if not kept or problem.rate[column] > problem.rate[kept[-1]]:
                    kept.append(column)
            self._sizes[job, pool] = kept
        return self._sizes[job, pool]

    def _admits(self, view: View, job: int) -> bool:
        """Test (2)."""
        taken = [other for other in self._due(view) if other in self._seen]
        profiles = [_Profile(view.now, int(devices)) for devices in view.capacity]
        before = set(self._behind(view, taken, [_Profile(view.now, int(devices)) for devices in view.capacity], job))
        return all(self._reserve(view, other, profiles) is not None or other in before for other in taken)

    def _behind(self, view: View, taken: list[int], profiles: list["_Profile"], new: int) -> list[int]:
        """Jobs that have no share even without the new one."""
        return [job for job in taken if job != new and self._reserve(view, job, profiles) is None]

    def _due(self, view: View) -> list[int]:
        """Admitted jobs in order of deadlines."""
        own = [job for job in view.waiting if view.problem.deadline[job] < inf and job not in self._dropped]
        return sorted(own, key=lambda job: (float(view.problem.deadline[job]), job))

    def _shares(self, view: View) -> dict[int, int]:
        """What admitted jobs hold now by their shares (1); those behind take the largest size that is free."""
        profiles = [_Profile(view.now, int(devices)) for devices in view.capacity]
        held, behind = {}, []
        for job in self._due(view):
            plan = self._reserve(view, job, profiles)
            if plan is None:
                behind.append(job)
            elif plan[0][0] <= view.now:
                held[job] = plan[0][2]
        free = [profile.levels[0] for profile in profiles]
        for job in behind:
            own = [c for pool in range(len(free)) for c in self.sizes(view.problem, job, pool)]
            own = [c for c in own if view.problem.gpus[c] <= free[view.problem.pool[c]]]
            if own:
                held[job] = max(own, key=lambda c: float(view.problem.rate[c]))
                free[view.problem.pool[held[job]]] -= int(view.problem.gpus[held[job]])
        return held

    def _reserve(self, view: View, job: int, profiles: list["_Profile"]) -> Plan | None:
        """The plan of the minimum satisfactory share (1), taken from the profile of its pool."""
        for pool, profile in enumerate(profiles):
            sizes = self.sizes(view.problem, job, pool)
            for count in range(1, len(sizes) + 1):
                plan = _filled(view, job, profile, sizes[:count])
                if plan is not None:
                    for first, until, column in plan:
                        profile.take(first, until, int(view.problem.gpus[column]))
                    return plan
        return None

    def _smallest(self, view: View, held: dict[int, int], free: Ints) -> None:
        """Give jobs without a deadline their smallest size."""
        for job in view.waiting:
            if job in held or job in self._dropped or view.problem.deadline[job] < inf:
                continue
            for pool in range(len(free)):
                sizes = self.sizes(view.problem, job, pool)
                if sizes and view.problem.gpus[sizes[0]] <= free[pool]:
                    held[job] = sizes[0]
                    free[pool] -= view.problem.gpus[sizes[0]]
                    break

    def _grow(self, view: View, held: dict[int, int], free: Ints) -> None:
        """Hand out what is left (3); admitted jobs whose share begins later may begin now."""
        options: list[tuple[float, int, int]] = []
        for job in [*held, *(job for job in self._due(view) if job not in held)]:
            self._offer(view, job, held, options)
        while options:
            _, job, column = options.pop(0)
            before = held.get(job)
            pool = view.problem.pool[column]
            more = view.problem.gpus[column] - (view.problem.gpus[before] if before is not None else 0)
            if more <= free[pool]:
                held[job] = column
                free[pool] -= more
                self._offer(view, job, held, options)

    def _offer(self, view: View, job: int, held: dict[int, int], options: list[tuple[float, int, int]]) -> None:
        """Add the job's next size, by its price (3)."""
        problem, before = view.problem, held.get(job)
        pools = range(len(problem.pools)) if before is None else [int(problem.pool[before])]
        for pool in pools:
            sizes = self.sizes(problem, job, pool)
            larger = sizes if before is None else sizes[sizes.index(before) + 1 :]
            if larger:
                column = larger[0]
                now, gpus = (0.0, 0) if before is None else (_area(view, before), int(problem.gpus[before]))
                price = (_area(view, column) - now) / (int(problem.gpus[column]) - gpus)
                insort(options, (price, job, column))
                return


def _area(view: View, column: int) -> float:
    """Device-seconds of what is left of a job in a configuration."""
    left = float(view.left[view.problem.job[column]])
    return float(view.problem.gpus[column]) * left / float(view.problem.rate[column])


def _filled(view: View, job: int, profile: "_Profile", sizes: list[int]) -> Plan | None:
    """Progressive filling (1) with a largest size, or None where the deadline is missed."""
    problem, left, held = view.problem, float(view.left[job]), int(view.held[job])
    due = float(problem.deadline[job])
    plan: Plan = []
    waits = float(view.starting[job])
    for first, until, level in profile.pieces():
        if first >= due:
            return None
        column = next((c for c in reversed(sizes) if problem.gpus[c] <= level), None)
        if column is None:
            held = -1
            continue
        waits = waits if column == held else problem.restart_s
        rate = float(problem.rate[column])
        end = first + waits + left / rate
        if end <= until:
            return [*plan, (first, end, column)] if end <= due else None
        worked = max(0.0, until - first - waits)
        waits = max(0.0, waits - (until - first))
        left, held = left - rate * worked, column
        plan.append((first, until, column))
    return None


class _Profile:
    """Devices that are free from a moment on, piece by piece."""

    def __init__(self, now: float, devices: int) -> None:
        self.times, self.levels = [now], [devices]

    def pieces(self) -> list[tuple[float, float, int]]:
        """From, to, free."""
        return list(zip(self.times, [*self.times[1:], inf], self.levels, strict=True))

    def take(self, first: float, until: float, devices: int) -> None:
        """Hold devices for a while."""
        start, end = self._cut(first), self._cut(until)
        for piece in range(start, end):
            self.levels[piece] -= devices

    def _cut(self, moment: float) -> int:
        piece = bisect_right(self.times, moment) - 1
        if self.times[piece] == moment:
            return piece
        self.times.insert(piece + 1, moment)
        self.levels.insert(piece + 1, self.levels[piece])
        return piece + 1
