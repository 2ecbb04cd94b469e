"""The ASGI application: reads requests, sends answers, keeps watches going.

What a request does is quick and in memory, so it is done in the event loop itself: a hop to another
thread would cost more than the work. Only what a webhook is asked of has a thread of its own.
"""

import asyncio
import contextlib
import functools
import http
import threading
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeVar

from dra_driver.sim.api.kinds import problems
from dra_driver.sim.api.serving import access, handling, options, routing, warning_headers
from dra_driver.sim.api.storing import codecs

Scope = Mapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
T = TypeVar("T")


class App:
    """Answers HTTP requests by a handler, with the faults and the log of the options."""

    def __init__(
        self,
        handler: handling.Handler,
        settings: options.Options,
        cut: Callable[[Any], None],
    ) -> None:
        """An application; `cut` drops the connection of the client with the given address."""
        self._handler = handler
        self._settings = settings
        self._cut = cut

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Before anything is read that somebody without access has sent.
        if refused := access.refusal(_headers(scope), self._settings.credentials):
            await _send_reply(_failure(refused), send)
            return
        request = await _read(scope, receive)
        target, failure = self._resolve(request)
        call = routing.describe(request, target)
        self._settings.request_log(call)
        fault = self._settings.fault(call) or options.NO_FAULT
        if fault.delay_seconds:
            await asyncio.sleep(fault.delay_seconds)
        if fault.drop == "before":
            await self._drop(scope, receive)
            return
        if fault.status:
            failure = problems.injected(
                fault.status, fault.reason, fault.message, fault.retry_after
            )
        if failure is None and self._handler.asks_others(request, target):
            answer = await _in_thread(functools.partial(self._answer, request, target, None))
        else:
            answer = self._answer(request, target, failure)
        if fault.drop == "after":
            await self._drop(scope, receive)
        elif isinstance(answer, handling.WatchReply):
            await _Watching(answer, self._settings.bookmark_seconds).run(receive, send)
        else:
            await _send_reply(answer, send)

    def _resolve(
        self, request: routing.Request
    ) -> tuple[routing.Target | None, problems.ApiError | None]:
        try:
            return self._handler.resolve(request), None
        except problems.ApiError as error:
            return None, error

    def _answer(
        self,
        request: routing.Request,
        target: routing.Target | None,
        failure: problems.ApiError | None,
    ) -> handling.Answer:
        if failure is not None:
            return _failure(failure)
        try:
            return self._handler.handle(request, target)
        except problems.ApiError as error:
            return _failure(error)

    async def _drop(self, scope: Scope, receive: Receive) -> None:
        self._cut(scope["client"])
        await _disconnected(receive)


async def _in_thread(work: Callable[[], T]) -> T:
    """What `work` gives, or raises; the loop goes on meanwhile, and may end without it."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(set_it: Callable[[Any], None], value: object) -> None:
        if not done.done():
            set_it(value)

    def run() -> None:
        try:
            told = functools.partial(settle, done.set_result, work())
        except BaseException as error:  # noqa: BLE001 - whoever waits is told
            told = functools.partial(settle, done.set_exception, error)
        with contextlib.suppress(RuntimeError):
            # The server has been stopped meanwhile.
            loop.call_soon_threadsafe(told)

    threading.Thread(target=run, name="admission", daemon=True).start()
    return await done


class _Watching:
    """Sends the events of a stream until it ends, its time is up, or the client is gone."""

    def __init__(self, reply: handling.WatchReply, bookmark_seconds: float) -> None:
        self._reply = reply
        self._bookmark_seconds = bookmark_seconds
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    async def run(self, receive: Receive, send: Send) -> None:
        await _send_head(200, self._reply.content_type, (), send)
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            self._reply.stream.open(self._wake)
            await self._send_events(gone, functools.partial(_send_part, send))
        except problems.ApiError as error:
            line = codecs.dumps({"type": "ERROR", "object": error.problem.status()}) + b"\n"
            await _send_part(send, line)
        finally:
            self._reply.stream.close()
            gone.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _wake(self) -> None:
        self._loop.call_soon_threadsafe(self._woken.set)

    async def _send_events(
        self, gone: "asyncio.Future[None]", send_part: Callable[[bytes], Awaitable[None]]
    ) -> None:
        deadline = self._loop.time() + self._reply.timeout_seconds
        idle = False
        while not gone.done():
            self._woken.clear()
            events, ended = self._reply.stream.take(bookmark=idle)
            if events:
                await send_part(b"".join(map(self._reply.render, events)))
            left = deadline - self._loop.time()
            if ended or left <= 0:
                return
            idle = not await self._woken_or(gone, min(self._bookmark_seconds, left))

    async def _woken_or(self, gone: "asyncio.Future[None]", seconds: float) -> bool:
        """Waits for a change or the end of the client; False if neither came in time."""
        waker = asyncio.ensure_future(self._woken.wait())
        done, _ = await asyncio.wait(
            (waker, gone), timeout=seconds, return_when=asyncio.FIRST_COMPLETED
        )
        waker.cancel()
        return bool(done)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _read(scope: Scope, receive: Receive) -> routing.Request:
    chunks = []
    more = True
    while more:
        message = await receive()
        chunks.append(message.get("body", b""))
        more = message.get("more_body", False)
    return routing.Request(
        method=scope["method"],
        path=scope["path"],
        query=routing.parse_query(scope["query_string"].decode()),
        headers=dict(_headers(scope)),
        body=b"".join(chunks),
    )


def _headers(scope: Scope) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]


def _failure(error: problems.ApiError) -> handling.Reply:
    problem = error.problem
    headers = warning_headers.made_of(error.warnings)
    if problem.code == http.HTTPStatus.UNAUTHORIZED:
        headers += (("www-authenticate", "Bearer"),)
    if "retryAfterSeconds" in problem.details:
        headers += (("retry-after", str(problem.details["retryAfterSeconds"])),)
    return handling.Reply(problem.code, codecs.dumps(problem.status()), headers=headers)


async def _send_head(
    status: int, content_type: str, headers: tuple[tuple[str, str], ...], send: Send
) -> None:
    pairs = [("content-type", content_type), ("cache-control", "no-cache, private"), *headers]
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [(name.encode(), value.encode()) for name, value in pairs],
        }
    )


async def _send_part(send: Send, part: bytes) -> None:
    await send({"type": "http.response.body", "body": part, "more_body": True})


async def _send_reply(reply: handling.Reply, send: Send) -> None:
    length = ("content-length", str(len(reply.body)))
    await _send_head(reply.status, reply.content_type, (*reply.headers, length), send)
    await send({"type": "http.response.body", "body": reply.body, "more_body": False})
