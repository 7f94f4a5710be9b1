/** A loopback port that nothing listened on a moment ago. */
export declare const freePort: () => Promise<number>;
//# sourceMappingURL=FreePort.d.ts.map
